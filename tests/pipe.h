#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "core/descriptor.h"

// Both ends do not block.
struct Pipe {
  trainer::Descriptor read, write;
  Pipe() {
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    read = trainer::Descriptor(fds[0]);
    write = trainer::Descriptor(fds[1]);
  }
};
