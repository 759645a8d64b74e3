// weft convert
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "io/convert_model.hpp"
#include "train/console.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct Request {
  fs::path in, out;
  std::string type;
  bool no_metadata = false;
};

int convert(const Request& request) {
  io::ConvertOptions options;
  options.with_metadata = !request.no_metadata;
  if (!request.type.empty()) {
    const io::BlockFormat* format = io::find_block_format(request.type);
    if (!format)
      throw UsageError(
          fmt::format("--type {}: there is no such type; choose F32, F16 or BF16", quote(request.type, 40)));
    options.type = format->type;
  }
  const io::TensorSource model = io::TensorSource::open(request.in);
  train::Console console(stderr);
  options.progress = [&](const io::SourceTensor& tensor, std::uint64_t done, std::uint64_t total) {
    console.status(fmt::format("{:3.0f} %  {}",
                               total ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0,
                               quote(tensor.name, 64)));
  };
  io::convert_model(model, request.out, options);
  console.status("100 %", true);
  console.end_status();
  fmt::print("{} tensors, {} bytes: {}\n", model.tensors().size(),
             train::grouped(static_cast<std::int64_t>(fs::file_size(request.out))), request.out.string());
  return kOk;
}

}  // namespace

void set_up_convert(CLI::App& app, Action& action) {
  auto request = std::make_shared<Request>();
  Request& r = *request;
  app.footer(
      "Tensors keep their names and, but for blocks, which become F32, their types. Metadata of GGUF becomes text in\n"
      "safetensors and comes back as it was.");
  app.add_option("in", r.in, "a GGUF file, a safetensors file, or a Hugging Face folder")->required();
  app.add_option("out", r.out, "the file to write; its name ends in .gguf or .safetensors")->required();
  app.add_option("--type", r.type, "F32, F16 or BF16, for all tensors of floating point");
  app.add_flag("--no-metadata", r.no_metadata, "leave metadata behind");
  app.callback([&action, request] { action = [request] { return convert(*request); }; });
}

}  // namespace weft::cli
