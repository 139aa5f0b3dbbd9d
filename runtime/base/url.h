// Paths that are URLs, such as those of an object store. The Python module fetches and uploads them; all else here has
// files.
//
//   isUrl("s3://bucket/corpus.bin")    // true, as of "file:///corpus.bin" and "simplecache::s3://bucket/corpus.bin"
#pragma once
#include "runtime/base/status.h"
#include <string>
#include <string_view>

namespace cleave::runtime {

bool isUrl(std::string_view path);
// Error: it is one; says who takes it.
Status refuseUrl(const std::string &path);

} // namespace cleave::runtime
