#pragma once

#include <filesystem>

namespace trainer {

// What was written so far survives a crash of the machine: fsync of a file, or of a directory's entries. Throws
// CheckpointError.
void sync_file(const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& path);

}  // namespace trainer
