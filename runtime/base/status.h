// The runtime's error type: a message for a person, and the exit status a tool ends with (docs/reference/commands.md).
#pragma once
#include <optional>
#include <string>
#include <utility>

namespace cleave {

// Stopped: a signal asked a run to end, and it did after a step (EX_TEMPFAIL: start it again).
enum class ErrorKind : int { Input = 1, Usage = 2, NoFit = 3, RunFailed = 4, Stopped = 75 };

class [[nodiscard]] Status {
public:
  Status() = default; // ok
  Status(ErrorKind kind, std::string message) : error(std::in_place, Error{kind, std::move(message)}) {}
  static Status ok() { return {}; }
  bool isOk() const { return !error; }
  explicit operator bool() const { return isOk(); } // true: ok
  const std::string &message() const {
    static const std::string none;
    return error ? error->message : none;
  }
  int exitStatus() const { return error ? static_cast<int>(error->kind) : 0; }

private:
  struct Error {
    ErrorKind kind;
    std::string message;
  };
  std::optional<Error> error;
};

// A value or the reason why there is none.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : held(std::move(value)) {}
  Result(Status failure) : failure(std::move(failure)) {}
  bool isOk() const { return held.has_value(); }
  explicit operator bool() const { return isOk(); }
  T &operator*() { return *held; }
  const T &operator*() const { return *held; }
  T *operator->() { return &*held; }
  const Status &status() const { return failure; }

private:
  std::optional<T> held;
  Status failure;
};

inline Status inputError(std::string message) { return {ErrorKind::Input, std::move(message)}; }
inline Status runError(std::string message) { return {ErrorKind::RunFailed, std::move(message)}; }

} // namespace cleave

#define CLEAVE_RETURN_IF_ERROR(expression)                                                                             \
  do {                                                                                                                 \
    if (::cleave::Status status_ = (expression); !status_.isOk()) return status_;                                      \
  } while (false)

// Declares a variable with the value of a Result, or returns its reason:
//   CLEAVE_ASSIGN_OR_RETURN(plan::Plan plan, readPlanFile(path));
#define CLEAVE_ASSIGN_OR_RETURN(declaration, ...)                                                                      \
  CLEAVE_ASSIGN_OR_RETURN_AS(CLEAVE_JOINED(result_, __LINE__), declaration, __VA_ARGS__)
#define CLEAVE_ASSIGN_OR_RETURN_AS(result, declaration, ...)                                                           \
  auto result = (__VA_ARGS__);                                                                                         \
  if (!result.isOk()) return result.status();                                                                          \
  declaration = std::move(*result)
#define CLEAVE_JOINED(a, b) CLEAVE_JOINED_AS(a, b)
#define CLEAVE_JOINED_AS(a, b) a##b
