// weft quantize
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>

#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/console.hpp"
#include "cli/interrupt.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "io/quantise_mixture.hpp"
#include "io/quantise_model.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct QuantizeRequest {
  fs::path in, out;
  std::string type;
  std::vector<std::string> tensor_types;
  bool pure = false;
};

io::TensorTypeRule parse_rule(const std::string& text) {
  const std::size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0)
    throw UsageError(fmt::format("--tensor-type {}: write PATTERN=TYPE, as in '*attn_v.weight=Q6_K'", quote(text)));
  const std::string type = text.substr(at + 1);
  const io::BlockFormat* format = io::find_block_format(type);
  if (!format || !format->can_quantise())
    throw UsageError(fmt::format("--tensor-type {}: there is no such type to quantize to; choose one of {}",
                                 quote(type, 40), io::block_format_list(true)));
  return {text.substr(0, at), format->type};
}

std::string_view reason_text(io::TypeReason reason) {
  switch (reason) {
    case io::TypeReason::wanted: return "";
    case io::TypeReason::rule: return "by --tensor-type";
    case io::TypeReason::mixture: return "where rounding hurts most";
    case io::TypeReason::kept: return "kept";
    case io::TypeReason::rows: return "its rows do not divide into the blocks of the type asked";
  }
  return "";
}

int quantize(const QuantizeRequest& request) {
  io::QuantiseOptions options;
  options.type = io::find_mixture(request.type).name;  // reports a wrong type before reading files
  options.pure = request.pure;
  for (const std::string& text : request.tensor_types) options.rules.push_back(parse_rule(text));
  const io::TensorSource model = io::TensorSource::open(model_path(request.in));

  Console console(stderr);
  const InterruptScope interrupt;
  const auto start = std::chrono::steady_clock::now();
  options.progress = [&](const io::SourceTensor& tensor, io::BlockType type, std::uint64_t done, std::uint64_t total) {
    if (interrupt.signal() != 0) throw Interrupted{};  // removes the unfinished file
    console.status(fmt::format("{:3.0f} %  {}  {} -> {}",
                               total ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0,
                               quote(tensor.name, 64), tensor.type_name, io::file_name_of(type)));
  };
  const auto plan = io::quantise_model(model, request.out, options);
  console.status("100 %", true);
  console.end_status();

  struct Group {
    std::size_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::pair<std::string_view, std::string_view>, Group> groups;  // by type and reason
  std::size_t twice = 0;
  std::uint64_t before = 0, after = 0;
  for (const io::TensorPlan& p : plan) {
    Group& group = groups[{io::file_name_of(p.type), reason_text(p.reason)}];
    const std::uint64_t bytes = io::bytes_for(p.type, p.tensor->shape, p.tensor->name);
    ++group.tensors;
    group.bytes += bytes;
    before += p.tensor->data.size();
    after += bytes;
    twice +=
        p.reason != io::TypeReason::kept && *p.tensor->type != p.type && !io::block_format(*p.tensor->type).is_plain();
  }
  for (const auto& [key, group] : groups)
    fmt::print("{:<7} {:>5} tensors  {:>15} bytes{}{}\n", key.first, group.tensors,
               grouped(static_cast<std::int64_t>(group.bytes)), key.second.empty() ? "" : "  ", key.second);
  fmt::print("{} -> {} bytes of tensors in {:.1f} s: {}\n", grouped(static_cast<std::int64_t>(before)),
             grouped(static_cast<std::int64_t>(after)),
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), request.out.string());
  if (twice > 0)
    put_message(fmt::format(
        "warning: {} tensors were in blocks before and are rounded twice; start from F32, F16 or BF16 where you can",
        twice));
  return kOk;
}

}  // namespace

void set_up_quantize(CLI::App& app, Action& action) {
  auto request = std::make_shared<QuantizeRequest>();
  QuantizeRequest& r = *request;
  app.footer(
      "Names such as Q4_K_M are mixtures: the matrices that rounding hurts most get a better type (Q3_K, Q4_K\n"
      "and Q5_K mean the M of each). The output matrix gets Q6_K at least. With --pure all matrices get one type.\n"
      "Vectors, norms and other small tensors keep their types. If rows do not divide into blocks of 256, their\n"
      "tensor gets a type with blocks of 32, or else F16.");
  app.add_option("in", r.in, std::string("a GGUF file") + kOrName)->required();
  app.add_option("out", r.out, "the GGUF file to write")->required();
  app.add_option("--type", r.type, io::mixture_list())->required();
  app.add_option("--tensor-type", r.tensor_types,
                 "PATTERN=TYPE: the type of tensors with these names, '*' and '?' for any text and any character; may "
                 "be given several times, and the last that matches counts")
      ->allow_extra_args(false);
  app.add_flag("--pure", r.pure, "all matrices get TYPE, or the most frequent type of a mixture");
  app.callback([&action, request] { action = [request] { return quantize(*request); }; });
}

}  // namespace weft::cli
