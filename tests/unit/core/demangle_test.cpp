#include "core/demangle.h"

#include <catch2/catch.hpp>

using trainer::demangle;
using trainer::demangle_words;

TEST_CASE("C++ symbols are made readable, other words are left") {
  CHECK(demangle("_ZN2at6native5addmmERKNS_6TensorE") == "at::native::addmm(at::Tensor const&)");
  CHECK(demangle("epoll_wait") == "epoll_wait");
  CHECK(demangle_words("#0 _ZN1a1bEv+0x10 in liba.so\n#1 _Z1cv+0x7 in b") ==
        "#0 a::b()+0x10 in liba.so\n#1 c()+0x7 in b");
  CHECK(demangle_words("column A_Zebra, _Z and 100 %") == "column A_Zebra, _Z and 100 %");
  CHECK(demangle_words("").empty());
}

TEST_CASE("a name too long for a line loses its middle; text that is no symbol loses nothing") {
  std::string symbol = "_Z";
  symbol += "500" + std::string(500, 'f') + "v";
  const std::string name = demangle(symbol.c_str());
  CHECK(name.size() == 160);
  CHECK(name.find("fff ... fff") != std::string::npos);
  const std::string text = "_Z" + std::string(1000, 'q');
  CHECK(demangle_words(text) == text);
}
