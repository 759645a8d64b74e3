// The errors that a caller can get. Each message names the op, what is wrong, the operands, and the cure if one is known.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace weft {

/// The caller's line, defaulted in public functions: `void f(..., Where where = Where::current())`.
using Where = std::source_location;

/// Base of all errors that public functions throw. `what()` is the whole message.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  /// Adds a line "while ..." for nested work: `catch (Error& e) { e.add_context("loading layer 3"); throw; }`.
  void add_context(std::string_view doing) { full_ = std::string(what()) + "\n  while " + std::string(doing); }
  const char* what() const noexcept override { return full_.empty() ? std::runtime_error::what() : full_.c_str(); }

 private:
  std::string full_;
};

/// Shapes that do not fit an op.
class ShapeError : public Error {
  using Error::Error;
};
/// A dtype that an op or a device does not take.
class DTypeError : public Error {
  using Error::Error;
};
/// No device, a lost device, operands on different devices, a tensor over a device's limit.
class DeviceError : public Error {
  using Error::Error;
};
/// A file that is missing, unreadable, unwritable, truncated or malformed.
class FileError : public Error {
  using Error::Error;
};
/// A wrong argument, option or order of calls.
class UsageError : public Error {
  using Error::Error;
};
/// A bug in Weft. Please report it.
class InternalError : public Error {
  using Error::Error;
};

}  // namespace weft
