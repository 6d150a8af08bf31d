#pragma once

namespace trainer::records {

// Thrown where a command was told to stop.
struct Stopped {};

}  // namespace trainer::records
