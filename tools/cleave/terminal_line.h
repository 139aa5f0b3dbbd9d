// What a long command is doing, on standard error: one line that is written over on a terminal and cleared at the end,
// else a line every two seconds.
//
//   TerminalLine line;
//   line.tell([&] { return fmt::format("cleave: step {} of {}", step, steps); });   // as often as one likes
#pragma once
#include <chrono>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace cleave::tool {

class TerminalLine {
public:
  ~TerminalLine() {
    if (isOpen) fmt::print(stderr, "\r\033[K");
  }
  // Calls `text` only when it is time for another line. The first comes after two seconds.
  template <typename Text> void tell(Text text) {
    using Seconds = std::chrono::duration<double>;
    const auto now = std::chrono::steady_clock::now();
    if (Seconds(now - told).count() < (isOpen ? 0.2 : 2)) return;
    told = now;
    fmt::print(stderr, "{}{}{}", isTerminal ? "\r\033[K" : "", fitting(text()), isTerminal ? "" : "\n");
    if (isTerminal) std::fflush(stderr);
    isOpen = isTerminal;
  }
  // As much of the text as the terminal has columns for.
  static std::string fitting(const std::string &text) {
    winsize size{};
    const bool knows = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return knows ? text.substr(0, size.ws_col - 1u) : text;
  }

private:
  const bool isTerminal = isatty(STDERR_FILENO) != 0;
  bool isOpen = false;
  std::chrono::steady_clock::time_point told = std::chrono::steady_clock::now();
};

} // namespace cleave::tool
