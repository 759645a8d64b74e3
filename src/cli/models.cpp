// weft models
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/quote.hpp"
#include "cli/commands.hpp"
#include "cli/fetch_model.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "weft/error.hpp"
#include "weft/llm_models.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

struct ModelsRequest {
  std::vector<fs::path> folders;
  bool json = false, fit = false;
  Extent context = 0;
  std::string device = "auto", device_memory;
  std::string name;
  bool yes = false, orphans = false;
};

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

std::vector<fs::path> folders_of(const ModelsRequest& request) {
  return request.folders.empty() ? llm::model_folders() : request.folders;
}

/// "fits in 312.4 MB", "needs 9120.3 MB", or why that is not known.
std::string fit_text(const llm::StoredModel& model, const ModelsRequest& request, OrderedJson& json) {
  if (!model.problem.empty() || model.context == 0) return "";  // damaged, or not a language model
  try {
    const llm::FitReport report =
        llm::fit(model.path, {.context = request.context,
                              .device_memory = request.device_memory.empty() ? 0 : parse_bytes(request.device_memory),
                              .device = parse_device(request.device)});
    json["need"] = report.need.total();
    json["fits"] = report.available || !report.fits ? OrderedJson(report.fits) : OrderedJson(nullptr);
    json["fit_context"] = report.context;
    return fmt::format("{} {} with {} positions",
                       !report.fits       ? "does not fit: takes"
                       : report.available ? "fits in"
                                          : "takes",
                       megabytes(report.need.total()), report.context);
  } catch (const Error& error) {
    json["fit_problem"] = error.what();
    const std::string_view text = error.what();
    return std::string(text.substr(0, text.find('\n')));
  }
}

int list_models(const ModelsRequest& request) {
  const std::vector<fs::path> folders = folders_of(request);
  const std::vector<llm::StoredModel> models = llm::stored_models(folders);
  OrderedJson all = OrderedJson::array();
  std::string text;
  std::size_t width = 4;
  for (const llm::StoredModel& model : models) width = std::max(width, model.name.size());
  std::uint64_t bytes = 0, packed = 0;
  for (const llm::StoredModel& model : models) {
    bytes += model.bytes;
    packed += model.packed_bytes;
    OrderedJson json{{"name", model.name},
                     {"path", model.path.string()},
                     {"format", model.format},
                     {"family", model.family},
                     {"type", model.type},
                     {"parameters", model.parameters},
                     {"context", model.context},
                     {"bytes", model.bytes},
                     {"packed_bytes", model.packed_bytes},
                     {"problem", model.problem.empty() ? OrderedJson(nullptr) : OrderedJson(model.problem)}};
    const std::string fits = request.fit ? fit_text(model, request, json) : "";
    all.push_back(std::move(json));
    text += fmt::format("{:<{}}  {:>12}  {:<6}  {:<12}  {:<8}{}{}\n", model.name, width, megabytes(model.bytes),
                        model.format, model.family, model.type,
                        model.context > 0 ? fmt::format("  context {}", model.context) : "",
                        fits.empty() ? "" : "  " + fits);
    if (!model.problem.empty()) text += fmt::format("{:{}}  {}\n", "", width, model.problem);
  }
  if (request.json) {
    put_foreign(json_text(all, 2) + "\n");
    return kOk;
  }
  if (folders.empty())
    text = "no folder of models is known; name one, or set WEFT_MODELS\n";
  else if (models.empty())
    text = "there are no models in these folders:\n";
  else
    text += fmt::format("{} model{}, {}, and {} of packed weights\n", models.size(), models.size() == 1 ? "" : "s",
                        megabytes(bytes), megabytes(packed));
  for (const fs::path& folder : folders) text += fmt::format("  {}\n", folder.string());
  put_foreign(text);
  return kOk;
}

int remove_model(const ModelsRequest& request) {
  if (request.orphans) {
    put_text(fmt::format("removed {} of packed weights whose models are gone\n", megabytes(llm::remove_orphans())));
    if (request.name.empty()) return kOk;
  }
  if (request.name.empty()) throw UsageError("weft models remove: give the name or the path of a model, or --orphans");
  std::error_code ignored;
  const bool is_path = fs::exists(request.name, ignored);
  const auto path = is_path                            ? std::optional<fs::path>(request.name)
                    : hub::is_model_name(request.name) ? hub::find_fetched(hub::parse_model_name(request.name))
                                                       : llm::find_model(request.name);
  if (!path)
    throw UsageError(
        fmt::format("weft models remove: there is no model {}; weft models lists them", quote(request.name, 60)));
  const std::vector<llm::StoredModel> models = llm::stored_models(std::span(&*path, 1));
  if (models.size() != 1)
    throw UsageError(
        fmt::format("{}: is not a model, but a folder of {}; name one of them", path->string(), models.size()));
  const llm::StoredModel& model = models[0];
  if (model.type.empty()) throw UsageError(fmt::format("{}: is not a model: {}", path->string(), model.problem));
  std::string text;
  for (const fs::path& file : model.files) text += fmt::format("  {}\n", file.string());
  text += megabytes(model.bytes + model.packed_bytes) + "\n";
  if (!request.yes) {
    put_foreign("these files would be removed; --yes removes them:\n" + text);
    return kFailure;
  }
  llm::remove_model(model);
  put_foreign("removed:\n" + text);
  return kOk;
}

int show_storage(const ModelsRequest& request) {
  const llm::ModelStorage s = llm::model_storage();
  std::uint64_t bytes = 0;
  const std::vector<llm::StoredModel> models = llm::stored_models(folders_of(request));
  for (const llm::StoredModel& model : models) bytes += model.bytes;
  if (request.json) {
    put_text(json_text(OrderedJson{{"models", models.size()},
                                   {"model_bytes", bytes},
                                   {"packed_folder", s.folder.string()},
                                   {"packed_files", s.packed_files},
                                   {"packed_bytes", s.packed_bytes},
                                   {"orphans", s.orphans},
                                   {"orphan_bytes", s.orphan_bytes},
                                   {"disk_free", s.disk_free},
                                   {"disk_size", s.disk_size}},
                       2) +
             "\n");
    return kOk;
  }
  std::string text = fmt::format("models          {:>14}  {}\n", megabytes(bytes), models.size());
  text += fmt::format("packed weights  {:>14}  {} in {}\n", megabytes(s.packed_bytes), s.packed_files,
                      s.folder.empty() ? "no cache folder" : s.folder.string());
  text += fmt::format("of models gone  {:>14}  {}{}\n", megabytes(s.orphan_bytes), s.orphans,
                      s.orphans > 0 ? "; weft models remove --orphans" : "");
  text += fmt::format("disk            {:>14}  free of {}\n", megabytes(s.disk_free), megabytes(s.disk_size));
  put_foreign(text);
  return kOk;
}

}  // namespace

void set_up_models(CLI::App& app, Action& action) {
  auto request = std::make_shared<ModelsRequest>();
  ModelsRequest& r = *request;
  app.require_subcommand(1);
  app.footer(
      "Without folders: $WEFT_MODELS, `models` in the cache folder, what was fetched from a hub (HF_HUB_CACHE), and\n"
      "where the scripts keep what they fetch.");
  const auto add_folders = [&](CLI::App& to) {
    to.add_option("folders", r.folders, "folders to look in, at most five levels deep");
    to.add_flag("--json", r.json, "for machines");
  };

  CLI::App& all = *app.add_subcommand("list", "the models in folders: size on the disk, family, type, context");
  add_folders(all);
  auto* fit =
      all.add_flag("--fit", r.fit, "also whether each fits, as weft inspect --fit tells; takes seconds for each");
  all.add_option("--context", r.context, "with --fit: positions of a sequence (default: the model's own)")->needs(fit);
  all.add_option("--device", r.device, "with --fit: auto, cpu, webgpu or webgpu:INDEX")->needs(fit);
  all.add_option("--device-memory", r.device_memory, "with --fit: what the model may take, as 6G")->needs(fit);
  all.callback([&action, request] { action = [request] { return list_models(*request); }; });

  set_up_fetch(*app.add_subcommand("fetch", "fetch a model by its name, or from an address"), action);

  CLI::App& gone = *app.add_subcommand("remove", "delete a model and its packed weights");
  gone.add_option("model", r.name, "a name, or the beginning of one, hf:OWNER/NAME, or a path");
  gone.add_flag("--yes", r.yes, "delete; without it the files are only listed");
  gone.add_flag("--orphans", r.orphans, "delete packed weights whose models are gone");
  gone.callback([&action, request] { action = [request] { return remove_model(*request); }; });

  CLI::App& place = *app.add_subcommand("storage", "what models and packed weights take on the disk");
  add_folders(place);
  place.callback([&action, request] { action = [request] { return show_storage(*request); }; });
}

}  // namespace weft::cli
