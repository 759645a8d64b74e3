// weft convert
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/interrupt.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "io/convert_model.hpp"
#include "io/quantised_folder.hpp"
#include "llm/convert.hpp"
#include "llm/merge_folder.hpp"
#include "metatensor/source.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertRequest {
  fs::path in, out;
  std::string type;
  std::vector<std::string> adapters;
  bool no_metadata = false, no_tokenizer = false;
  std::string mmproj;
};

/// A name without an ending, or with a '/' at its end, is that of a folder.
bool names_folder(const fs::path& path) {
  std::error_code ignored;
  return path.filename().empty() || path.extension().empty() || fs::is_directory(path, ignored);
}

/// Between a GGUF file and a Hugging Face folder, where names and layouts change too.
int convert_between_kinds(const ConvertRequest& request, const io::TensorSource& model, llm::ConvertOptions options) {
  Console console(stderr);
  const InterruptScope interrupt;
  options.with_tokenizer = !request.no_tokenizer;
  options.mmproj = request.mmproj;
  options.progress = [&](std::string_view tensor, std::uint64_t done, std::uint64_t total) {
    if (interrupt.signal() != 0) throw Interrupted{};  // removes the unfinished file
    console.status(fmt::format("{:3.0f} %  {}", 100.0 * static_cast<double>(done) / static_cast<double>(total),
                               quote(tensor, 64)));
  };
  const llm::Converted converted = model.gguf() ? llm::convert_to_folder(model, request.out, options)
                                   : request.out.extension() == ".gguf"
                                       ? llm::convert_to_gguf(model, request.out, options)
                                       : llm::write_folder(model, request.out, options);
  console.status("100 %", true);
  console.end_status();
  for (const std::string& note : converted.notes) put_message("note: " + note);
  fmt::print("{} tensors: {}\n", converted.tensors, request.out.string());
  return kOk;
}

int convert(ConvertRequest request) {
  io::ConvertOptions options;
  options.with_metadata = !request.no_metadata;
  if (!request.type.empty()) {
    const io::BlockFormat* format = io::find_block_format(request.type);
    if (!format)
      throw UsageError(
          fmt::format("--type {}: there is no such type; choose F32, F16 or BF16", quote(request.type, 40)));
    options.type = format->type;
  }
  request.in = model_path(request.in);
  const io::TensorSource model =
      llm::with_adapters(io::with_quantised_layers(metatensor::open_source(request.in)), adapters_of(request.adapters));
  if (!request.mmproj.empty() && !(model.gguf() && names_folder(request.out)))
    throw UsageError("--mmproj is for the way from a GGUF file to a folder; leave it out here");
  const bool described = model.kind() == io::SourceKind::folder && fs::exists(request.in / "config.json");
  if ((model.gguf() && names_folder(request.out)) ||
      (described && (request.out.extension() == ".gguf" || names_folder(request.out))))
    return convert_between_kinds(request, model, {.type = options.type});
  Console console(stderr);
  const InterruptScope interrupt;
  options.progress = [&](const io::SourceTensor& tensor, std::uint64_t done, std::uint64_t total) {
    if (interrupt.signal() != 0) throw Interrupted{};  // removes the unfinished file
    console.status(fmt::format("{:3.0f} %  {}",
                               total ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0,
                               quote(tensor.name, 64)));
  };
  if (request.out.extension() == ".metatensor")
    metatensor::write_model(model, request.out, options);
  else
    io::convert_model(model, request.out, options);
  console.status("100 %", true);
  console.end_status();
  for (const std::string& note : model.notes()) put_message("note: " + note);
  fmt::print("{} tensors, {} bytes: {}\n", model.tensors().size(),
             grouped(static_cast<std::int64_t>(fs::file_size(request.out))), request.out.string());
  return kOk;
}

}  // namespace

void set_up_convert(CLI::App& app, Action& action) {
  auto request = std::make_shared<ConvertRequest>();
  ConvertRequest& r = *request;
  app.footer(
      "From a GGUF file to a folder, and from a folder with config.json to a GGUF file or another folder: the model "
      "with its\nconfiguration and "
      "tokenizer, as the other kind of file names and lays out its tensors. Otherwise tensors keep their names, and "
      "metadata of\n"
      "GGUF becomes text in safetensors and comes back as it was. Blocks become F32, and so do norms and biases in "
      "GGUF; other types stay.\n"
      "A metatensor file keeps all types, blocks too.");
  app.add_option("in", r.in, std::string("a GGUF, safetensors or metatensor file, or a Hugging Face folder") + kOrName)
      ->required();
  app.add_option("out", r.out, "the file to write, whose name ends in .gguf, .safetensors or .metatensor, or a folder")
      ->required();
  app.add_option("--type", r.type, "F32, F16 or BF16, for all tensors of floating point");
  add_adapter_option(app, r.adapters);
  app.add_option(
      "--mmproj", r.mmproj,
      "from a GGUF file to a folder: the file with the part of the model that sees; without it, one beside the model "
      "whose name has mmproj in it, if it fits; none: the language model alone");
  app.add_flag("--no-tokenizer", r.no_tokenizer, "between a GGUF file and a folder: leave the tokenizer behind");
  app.add_flag("--no-metadata", r.no_metadata, "leave metadata behind");
  app.callback([&action, request] { action = [request] { return convert(*request); }; });
}

}  // namespace weft::cli
