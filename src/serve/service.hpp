// What all transports share: calls of values as they come from a wire, and identities by token.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "catalogue/wire.hpp"
#include "weft/catalogue.hpp"

namespace weft::serve {

/// The parts of a service. The exchange and the handles must outlive it.
struct Service {
  operations::Exchange& exchange;
  operations::Handles& handles;

  /// Starts a call with an input from a wire. Errors: OperationError.
  operations::Subscription start(std::string_view id, Value input, operations::CallOptions options) const;
  /// An answer for a wire.
  Value answer(const operations::Envelope& envelope, operations::WireTensors form,
               const operations::Holder& holder) const;
};

/// {"code", "message", "details"}.
Value to_value(const operations::OperationError& error);
/// CallOptions::via as the text of a header, and back. Errors: OperationError VALIDATION_ERROR.
std::string via_text(const std::vector<std::string>& via);
std::vector<std::string> read_via(std::string_view text);
/// The HTTP status of an error of this operation (null: not known).
int http_status(const operations::OperationError& error, const operations::Specification* specification);

/// Identities by their tokens, from a file {"tokens": [{"token": "...", "id": "...", "scopes": [...], "resources": {...}}]}.
/// Scopes ["*"] are every scope that there is, as an identity of the owner has them.
/// Tokens are kept as they are, compared in constant time, and part of no message.
class Tokens {
 public:
  /// Errors: FileError that names the place, without the token; for a token under 16 characters, or one given twice.
  static Tokens load(const std::filesystem::path& path, const operations::Registry& registry);
  /// Null for a token that is not known.
  const operations::Identity* find(std::string_view token) const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string token;
    operations::Identity identity;
  };
  std::vector<Entry> entries_;
};

/// The OpenAPI 3.1 description of the external operations.
Value openapi(const operations::Registry& registry, std::string_view version);

}  // namespace weft::serve
