// A folder that a model is written into, and which may already hold another model.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::llm {

/// Files of a folder other than those that will be written.
struct FolderRest {
  std::vector<std::string> weights;    ///< files that readers would take for weights of the model
  std::vector<std::string> tokenizer;  ///< ... for its tokenizer, chat template or settings
};
/// Both sorted; empty for a folder that is not there.
FolderRest rest_of_folder(const std::filesystem::path& folder,
                          const std::function<bool(std::string_view name)>& is_written);

}  // namespace weft::llm
