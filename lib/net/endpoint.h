#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::net {

constexpr int64_t kDefaultPort = 29500;  // torchrun's

struct Endpoint {
  std::string host;  // as given: a name or digits, without brackets
  int64_t port = kDefaultPort;
  bool operator==(const Endpoint&) const = default;
};

// "host", "host:port", "fd00::7", "[fd00::7]", "[fd00::7]:port", or several with commas between them. Port 0 stands
// for a free one. `option` is named in faults ("launch.rdzv_endpoint"). Throws SpecError.
std::vector<Endpoint> parse_endpoints(std::string_view text, std::string_view option,
                                      int64_t default_port = kDefaultPort);

}  // namespace trainer::net
