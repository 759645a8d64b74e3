// A folder that a model is written into, which may hold another already.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::llm {

/// What a folder holds beside the files that will be written.
struct FolderRest {
  std::vector<std::string> weights;    ///< what Weft or transformers would take for weights of the model
  std::vector<std::string> tokenizer;  ///< ... for parts of its tokenizer, chat template or rules of generation
};
/// Both sorted; empty for a folder that is not there.
FolderRest rest_of_folder(const std::filesystem::path& folder,
                          const std::function<bool(std::string_view name)>& is_written);

}  // namespace weft::llm
