// Checksums of stored bytes: XXH3 of 128 bits in hexadecimal digits. They find damage, not forgery (plan/digest.h).
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace cleave::runtime {

std::string checksumOf(std::span<const std::byte> bytes); // "06b05ab6733a618578af5f94892f3950"

} // namespace cleave::runtime
