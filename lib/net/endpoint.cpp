#include "net/endpoint.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace trainer::net {
namespace {

Endpoint parse_one(std::string_view text, std::string_view option, int64_t default_port) {
  const auto refuse = [&](std::string_view what) {
    fail<SpecError>("{}: got \"{}\": {}; expected host, host:port or [IPv6 address]:port", option, text,
                    what);
  };
  std::string_view host = text, port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == text.npos) refuse("no ] after [");
    host = text.substr(1, end - 1);
    if (host.find(':') == host.npos) refuse("no IPv6 address between the brackets");
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') refuse("something after ] that is no port");
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
  } else if (std::ranges::count(text, ':') == 1) {  // with more it is an IPv6 address without a port
    has_port = true;
    host = text.substr(0, text.find(':'));
    port = text.substr(host.size() + 1);
  }
  if (text.find("://") != text.npos) refuse("this is a URL");
  if (host.empty()) refuse("no host");
  if (host.find_first_of(" \t\r\n/[]") != host.npos)
    refuse("a host has no spaces, slashes or brackets in it");
  Endpoint out{std::string(host), default_port};
  if (has_port) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (port.empty() || error != std::errc() || end != port.data() + port.size() || out.port < 0 ||
        out.port > 65535) {
      refuse("the port is no number from 0 to 65535");
    }
  }
  return out;
}

}  // namespace

std::vector<Endpoint> parse_endpoints(std::string_view text, std::string_view option, int64_t default_port) {
  std::vector<Endpoint> out;
  while (true) {
    const size_t comma = text.find(',');
    std::string_view one = text.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    out.push_back(parse_one(one, option, default_port));
    if (comma == text.npos) return out;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace trainer::net
