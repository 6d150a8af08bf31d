#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "net/connection.h"

// How two ends prove to each other that they know the job's token (C connects, L listens):
//
//   C  magic, version, nonce
//   L  magic, version, nonce       sent to one that greeted rightly; others get no byte
//   C  job id, HMAC(token; "C", both nonces, job id)
//   L  welcome, HMAC(token; "L", both nonces, job id); or a refusal
//
// C proves first, so that knocking at an open port gains nothing to guess tokens with. Nonces are fresh, so a recording
// proves nothing; the role is under the HMAC, so an echo proves nothing. Who can change packets on the way is outside
// of this: messages after the handshake are neither encrypted nor signed.

namespace trainer::net {

constexpr size_t kMaxHandshakeBytes = 1024;  // from a stranger, in all
constexpr size_t kMaxJobIdBytes = 256;
constexpr size_t kMacBytes = 32;
constexpr uint32_t kProtocolVersion = 1;

using Mac = std::array<unsigned char, kMacBytes>;
Mac hmac_sha256(std::string_view key, std::string_view message);

enum class Role : char { kConnecting = 'C', kListening = 'L' };

// Why a peer is not ours.
enum class Refusal { kNone, kNotTrainer, kOtherVersion, kOtherJob, kOtherToken };

// One side of it, bytes in and bytes out; knows no socket.
class Handshake {
 public:
  // Throws SpecError for a job id that is too long.
  Handshake(Role role, const Credentials& credentials);

  // What is to be sent now; empties it.
  std::string take_output();
  // Any part of what the peer sent. Nothing more is read once it is over.
  void receive(std::string_view bytes);

  bool is_over() const { return stage_ == Stage::kOver; }
  Refusal refusal() const { return refusal_; }  // when it is over; kNone: the peer is known
  // For people, after "gpu7:29500": ": the tokens differ (launch.token)", " runs another job (...)".
  std::string reason() const;
  // What the peer sent after its part of the handshake.
  std::string take_rest() { return std::move(input_); }

 private:
  enum class Stage { kGreeting, kProof, kVerdict, kOver };
  bool read_greeting();
  bool read_proof();
  bool read_verdict();
  // The next frame's body; false: not all there yet.
  bool read_frame(size_t min_bytes, size_t max_bytes, std::string& body);
  Mac mac_of(Role role, std::string_view job_id) const;
  void refuse(Refusal refusal);

  Role role_;
  Credentials credentials_;
  std::string nonces_[2];  // C's, L's
  Stage stage_ = Stage::kGreeting;
  Refusal refusal_ = Refusal::kNone;
  uint32_t peer_version_ = 0;
  std::string peer_job_;
  std::string input_, output_;
};

}  // namespace trainer::net
