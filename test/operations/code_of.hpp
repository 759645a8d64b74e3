// The code of the error that a call of an operation ends with.
#pragma once

#include <string>

#include "weft/operations.hpp"

namespace weft::test {

/// "none" without an error.
std::string code_of(const auto& call) {
  try {
    call();
  } catch (const operations::OperationError& error) {
    return error.code();
  }
  return "none";
}

}  // namespace weft::test
