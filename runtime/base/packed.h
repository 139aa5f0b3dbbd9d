// Plain values as the bytes of a message, one after the other; as this machine has them.
//
//   std::string message = packed(int32_t(7)) + packed(3.5);
//   std::string_view rest = message;
//   int32_t number = 0;
//   unpack(rest, number)       // true: number == 7, and `rest` goes on behind it
#pragma once
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace cleave::runtime {

template <typename T> std::string packed(const T &value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char *>(&value), sizeof value};
}

// False: too few bytes are left.
template <typename T> bool unpack(std::string_view &bytes, T &value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return true;
}

} // namespace cleave::runtime
