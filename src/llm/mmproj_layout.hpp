// What llama.cpp calls an mmproj file: the tower and the projector of a model that sees, in a GGUF file of its own. The kinds that
// Weft knows, and how they name what a folder names otherwise.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weft::llm::detail {

enum class MmprojKind : std::uint8_t { llava, idefics3, gemma3, qwen2, qwen2_5, qwen3, pixtral };

/// Names without ".weight" and ".bias"; {} is the number of a layer. The folder's have no "model." in front.
struct MmprojName {
  std::string_view folder, file;
};

struct MmprojLayout {
  MmprojKind kind;
  std::string_view projector;                ///< clip.projector_type
  std::string_view architecture;             ///< general.architecture of the language model; "": any
  std::string_view row_token;                ///< stands for a row of an image in prompts
  std::span<const std::string_view> around;  ///< further tokens that prompts have around images
  std::span<const MmprojName> names;
};

/// Null for a projector that Weft does not know.
const MmprojLayout* find_mmproj_layout(std::string_view projector);
const MmprojLayout& mmproj_layout(MmprojKind kind);
/// "gemma3, idefics3, ..."
std::string known_projectors();

/// The name of a folder's tensor in the file, or the other way round; nothing for a tensor that is not in the list.
std::optional<std::string> mmproj_name_of_folder(const MmprojLayout& layout, std::string_view name);
std::optional<std::string> folder_name_of_mmproj(const MmprojLayout& layout, std::string_view name);
/// A folder's name without what some folders have in front or in the middle of it.
std::string usual_folder_name(std::string_view name);

}  // namespace weft::llm::detail
