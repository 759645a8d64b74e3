// What an error says.
#pragma once

#include <exception>
#include <string>

#include "weft/error.hpp"

namespace weft::test {

/// The message of the E that `call` throws (by default any of Weft), or a text that says that it did not.
template <class E = Error, class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

}  // namespace weft::test
