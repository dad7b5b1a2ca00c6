// The kernel cache on disk: named entries in <cache folder>/kernels. An entry is written under a temporary name and
// renamed, so that readers see all of it or nothing; a damaged one (wrong size or checksum) is removed and counts as
// missing. A folder that can't be written is said once and then left alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace braze::jit {

std::optional<std::string> read_entry(const std::string& name);
void write_entry(const std::string& name, std::string_view contents);

// Keeps the source of a kernel that failed to compile, for a bug report; gives its path, or "" if nothing is writable.
std::string keep_source(const std::string& text);

}  // namespace braze::jit
