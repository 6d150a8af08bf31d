#include "net/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "net/frame.h"

namespace trainer::net {
namespace {

// The first byte is no letter, so that a text protocol is told at once. Magic and version come first in every version.
constexpr std::string_view kMagic = "\x8ftrainer";
constexpr size_t kNonceBytes = 32;
constexpr size_t kGreetingBytes = kMagic.size() + 4 + kNonceBytes;
enum Verdict : char { kWelcome = 0, kOtherJob = 1, kOtherToken = 2 };

void append_u32(std::string& to, uint32_t value) {
  const auto bytes = encode_u32(value);
  to.append(bytes.data(), bytes.size());
}

void append_frame(std::string& to, std::string_view body) {
  append_u32(to, static_cast<uint32_t>(body.size()));
  to += body;
}

std::string_view bytes_of(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

bool is_equal(const Mac& mac, std::string_view bytes) {
  return bytes.size() == mac.size() &&
         ::sodium_memcmp(mac.data(), bytes.data(), mac.size()) == 0;  // constant time
}

// From a stranger: it may hold anything.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, kMaxJobIdBytes));
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < ' ' || c == '"' || c >= 127; }, '?');
  return out;
}

}  // namespace

Mac hmac_sha256(std::string_view key, std::string_view message) {
  crypto_auth_hmacsha256_state state;
  Mac mac;
  ::crypto_auth_hmacsha256_init(&state, reinterpret_cast<const unsigned char*>(key.data()), key.size());
  ::crypto_auth_hmacsha256_update(&state, reinterpret_cast<const unsigned char*>(message.data()),
                                  message.size());
  ::crypto_auth_hmacsha256_final(&state, mac.data());
  return mac;
}

Handshake::Handshake(Role role, const Credentials& credentials) : role_(role), credentials_(credentials) {
  if (credentials_.job_id.size() > kMaxJobIdBytes) {
    fail<SpecError>("launch.run_id: got {} bytes; expected at most {}", credentials_.job_id.size(),
                    kMaxJobIdBytes);
  }
  if (::sodium_init() < 0) fail<DistributedError>("launch: no random numbers from the system (sodium_init)");
  std::string& own = nonces_[role_ == Role::kListening];
  own.resize(kNonceBytes);
  ::randombytes_buf(own.data(), own.size());
  if (role_ == Role::kConnecting) {
    output_ = kMagic;
    append_u32(output_, kProtocolVersion);
    output_ += own;
  }
}

std::string Handshake::take_output() {
  return std::exchange(output_, {});
}

void Handshake::receive(std::string_view bytes) {
  if (is_over()) return;
  input_ += bytes;
  bool more = true;
  while (more && !is_over()) {
    switch (stage_) {
      case Stage::kGreeting:
        more = read_greeting();
        break;
      case Stage::kProof:
        more = read_proof();
        break;
      case Stage::kVerdict:
        more = read_verdict();
        break;
      case Stage::kOver:
        break;
    }
  }
}

bool Handshake::read_greeting() {
  const std::string_view input = input_;
  if (input.substr(0, kMagic.size()) != kMagic.substr(0, input.size())) {
    refuse(Refusal::kNotTrainer);
    return false;
  }
  if (input.size() < kMagic.size() + 4) return false;
  peer_version_ = decode_u32(input.substr(kMagic.size()));
  const bool is_same_version = peer_version_ == kProtocolVersion;
  if (is_same_version && input.size() < kGreetingBytes) return false;
  if (role_ == Role::kListening) {  // also to another version: so it learns that this is one
    output_ = kMagic;
    append_u32(output_, kProtocolVersion);
    output_ += nonces_[1];
  }
  if (!is_same_version) {
    refuse(Refusal::kOtherVersion);
    return false;
  }
  nonces_[role_ == Role::kConnecting] = input.substr(kGreetingBytes - kNonceBytes, kNonceBytes);
  input_.erase(0, kGreetingBytes);
  stage_ = role_ == Role::kConnecting ? Stage::kVerdict : Stage::kProof;
  if (role_ == Role::kConnecting) {
    const Mac mac = mac_of(role_, credentials_.job_id);
    append_frame(output_, credentials_.job_id + std::string(bytes_of(mac)));
  }
  return true;
}

bool Handshake::read_proof() {
  std::string body;
  if (!read_frame(kMacBytes, kMaxJobIdBytes + kMacBytes, body)) return false;
  peer_job_ = body.substr(0, body.size() - kMacBytes);
  const bool is_same_token =
      is_equal(mac_of(Role::kConnecting, peer_job_), std::string_view(body).substr(peer_job_.size()));
  const bool is_same_job = peer_job_ == credentials_.job_id;
  std::string verdict;
  if (!is_same_job) {
    verdict = kOtherJob;
    if (is_same_token) verdict += credentials_.job_id;  // ours is told only to one who knows the token
    refuse(Refusal::kOtherJob);
  } else if (!is_same_token) {
    verdict = kOtherToken;
    refuse(Refusal::kOtherToken);
  } else {
    verdict = kWelcome;
    verdict += bytes_of(mac_of(role_, peer_job_));
    stage_ = Stage::kOver;
  }
  append_frame(output_, verdict);
  return true;
}

bool Handshake::read_verdict() {
  std::string body;
  if (!read_frame(1, kMaxJobIdBytes + kMacBytes, body)) return false;
  const std::string_view rest = std::string_view(body).substr(1);
  if (body[0] == kWelcome) {
    if (!is_equal(mac_of(Role::kListening, credentials_.job_id), rest)) {
      refuse(Refusal::kOtherToken);
    }
    stage_ = Stage::kOver;
  } else if (body[0] == kOtherJob) {
    peer_job_ = printable(rest);
    refuse(Refusal::kOtherJob);
  } else {
    refuse(body[0] == kOtherToken ? Refusal::kOtherToken : Refusal::kNotTrainer);
  }
  return true;
}

bool Handshake::read_frame(size_t min_bytes, size_t max_bytes, std::string& body) {
  if (input_.size() < kLengthBytes) return false;
  const size_t length = decode_u32(input_);
  if (length < min_bytes || length > max_bytes) {
    refuse(Refusal::kNotTrainer);
    return false;
  }
  if (input_.size() < kLengthBytes + length) return false;
  body = input_.substr(kLengthBytes, length);
  input_.erase(0, kLengthBytes + length);
  return true;
}

Mac Handshake::mac_of(Role role, std::string_view job_id) const {
  std::string message = "trainer control plane ";
  message += static_cast<char>(role);
  append_u32(message, kProtocolVersion);
  message += nonces_[0];
  message += nonces_[1];
  message += job_id;  // last: all before it are of fixed length
  return hmac_sha256(credentials_.token, message);
}

void Handshake::refuse(Refusal refusal) {
  refusal_ = refusal;
  stage_ = Stage::kOver;
}

std::string Handshake::reason() const {
  switch (refusal_) {
    case Refusal::kNone:
      return {};
    case Refusal::kNotTrainer:
      return role_ == Role::kConnecting ? ": what answers there is not a trainer" : ": it is not a trainer";
    case Refusal::kOtherVersion:
      return fmt::format(": another version of trainer (it speaks protocol {}, this one {})", peer_version_,
                         kProtocolVersion);
    case Refusal::kOtherJob:
      if (peer_job_.empty()) return fmt::format(" runs another job (ours is \"{}\")", credentials_.job_id);
      return fmt::format(" runs another job (id \"{}\", ours is \"{}\")", printable(peer_job_),
                         credentials_.job_id);
    case Refusal::kOtherToken:
      return ": the tokens differ (launch.token)";
  }
  return {};
}

}  // namespace trainer::net
