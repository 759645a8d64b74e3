// The operations that a command works with, its input for them, and what becomes of answers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/elsewhere.hpp"
#include "weft/catalogue.hpp"

namespace weft::cli {

/// The operations of this process, with the rights of its owner, or those of another place.
struct Offer {
  explicit Offer(const Elsewhere& place);
  operations::Handles& handles() { return catalogue ? catalogue->handles() : none; }

  std::shared_ptr<operations::Registry> registry = std::make_shared<operations::Registry>();
  std::optional<operations::Catalogue> catalogue;
  operations::Handles none;
};

/// --input, which is JSON or @FILE, with those of --tensor as members: NAME=FILE.npy is an array, NAME=FILE of another suffix the bytes of
/// the file as u8 [bytes]. NAME[]=FILE adds to a list. Errors: UsageError, FileError.
Value call_input(const std::string& input, const std::vector<std::string>& tensors, operations::Handles& handles);

/// Writes the tensors of an answer, by their paths, to a file of its ending; u8 [bytes] alone as the file of any other ending. Errors:
/// UsageError if there are none, or too many.
void write_tensors(const std::filesystem::path& path, const Value& data);

int exit_code_of(const operations::OperationError& error);

}  // namespace weft::cli
