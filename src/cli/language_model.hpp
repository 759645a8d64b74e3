// What the commands that run language models share: options of loading and drawing, and the way to a model.
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "weft/llm.hpp"

namespace weft::cli {

struct ModelOptions {
  std::filesystem::path path;
  std::string device = "auto", cache = "f32";
  std::vector<double> split;
  std::vector<std::int64_t> layers;
  std::int64_t context = 0, threads = 0;
  std::string device_memory;
  std::vector<std::string> adapters;  // see adapters_of
  bool merges_adapters = false;
  std::filesystem::path chat_template;
  std::filesystem::path mmproj = "none";  // see add_image_options
  bool whole_cache = false, exact = false, no_packed_file = false;
};
void add_model_options(
    CLI::App& app, ModelOptions& options,
    const std::string& what = "GGUF file, or folder with config.json, tokenizer.json and safetensors");

/// --adapter, and what its values mean: PATH or PATH=SCALE. Errors: UsageError.
void add_adapter_option(CLI::App& app, std::vector<std::string>& adapters);
std::vector<llm::AdapterUse> adapters_of(const std::vector<std::string>& values);

/// --mmproj, for commands that show the model images. Other commands load no tower.
void add_image_options(CLI::App& app, ModelOptions& options);

struct DrawOptions {
  llm::GenerateOptions generate;
  std::int64_t seed = -1;
  std::vector<std::string> biases;  // ID=VALUE
  std::filesystem::path grammar, schema;
  bool lenient_schema = false;
};
/// --max-tokens, --temperature, --top-k and so on; some commands have the first ones already.
void add_draw_options(CLI::App& app, DrawOptions& options);
llm::GenerateOptions generate_options(const DrawOptions& options);

/// Whether it is a GGUF file, or a folder of a language model.
bool is_language_model(const std::filesystem::path& path);
/// UsageError "WHAT: byte N ..." unless the text is UTF-8.
void require_utf8_text(std::string_view text, std::string_view what);
/// Takes --threads. UsageError for a number out of range.
void use_threads(const ModelOptions& options);
/// The bytes of "6G", "500M" or "4096", and a type of cache by its name. Errors: UsageError.
std::uint64_t parse_bytes(const std::string& text);
CacheType parse_cache_type(const std::string& name);
/// The end of the help of an argument that `model_path` takes.
inline constexpr const char* kOrName = "; or hf:OWNER/NAME[:TYPE], which is fetched if it is not here";
/// The path itself if it exists; that of hf:OWNER/NAME or an https address, which is fetched if it is not here; else the model of that
/// name in the folders of `weft models list`, if there is one, or the path. Errors: FileError for OWNER/NAME, which says how to
/// fetch it; as hub::fetch.
std::filesystem::path model_path(const std::filesystem::path& given);
/// --device, --split and --layers of `load` and `fit`. The help of a command that has them, and their values as load options.
void add_division_options(CLI::App& app, std::vector<double>& split, std::vector<std::int64_t>& layers);
inline constexpr const char* kDevicesHelp =
    "auto, cpu, webgpu or webgpu:INDEX; several, as in webgpu:0,webgpu:1 or webgpu,cpu, divide the layers of a "
    "language "
    "model";
void set_devices(llm::LoadOptions& load, const std::string& devices, const std::vector<double>& split,
                 const std::vector<std::int64_t>& layers);
/// The device of models that are not divided: the first of --device.
Device first_device(const std::string& devices);
/// Loads it by these options, with a line of progress on a terminal.
llm::Model load_language_model(const ModelOptions& options, int sequences = 1);

/// "36 tokens of prompt in 0.12 s, 60 tokens in 0.50 s (120.0 a second)".
std::string speed_text(const llm::Result& result);
}  // namespace weft::cli
