// The files of a repository, and which of them make a model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/hub.hpp"

namespace weft::hub {

struct ListedFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string blob = {};    // its name in the cache: SHA-256 of a large file, else the hash of git
  std::string sha256 = {};  // of a large file
};

struct Listing {
  std::string commit;
  std::vector<ListedFile> files;
};

/// The answer of the hub about a repository at a revision. Files with names that could not be paths below a folder are left out, but
/// counted: `unsafe` is the first of them.
/// Errors: FileError for an answer that is not one.
Listing read_listing(std::string_view json, std::string_view source, std::string& unsafe);

struct Chosen {
  std::vector<ListedFile> files;
  std::vector<bool> are_weights;  // for each file
  std::string main;               // the file that is the model; empty: the folder
};

/// The files of a model: for a choice that names a file, that file with the other parts of a split one; for a type, the GGUF file
/// of this type; without a choice the configuration, tokenizer and safetensors files, or the only GGUF file, or that of Q4_K_M.
/// `read` gives the content of a small file.
/// Errors: UsageError if there is no such file, or more than one, with the files that there are; FileError for a part that is missing, and
/// for an index that names files which the repository does not have.
Chosen choose_files(const Listing& listing, const ModelName& name,
                    const std::function<std::string(const ListedFile&)>& read);

}  // namespace weft::hub
