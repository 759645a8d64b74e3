// weft models fetch
#include "cli/fetch_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/quote.hpp"
#include "cli/console.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

struct FetchRequest {
  std::string name, sha256;
  std::int64_t retries = 5, timeout = 30;
  bool json = false, dry_run = false, quiet = false;
};

std::string progress_line(const hub::FetchProgress& p) {
  constexpr std::size_t kColumns = 30;
  const double share = p.total ? static_cast<double>(p.done) / static_cast<double>(p.total) : 0;
  const auto filled = static_cast<std::size_t>(share * kColumns);
  std::string text = fmt::format("fetching [{:<30}] {:3.0f} %  {:.1f} of {:.1f} MB", std::string(filled, '='),
                                 100 * share, static_cast<double>(p.done) / 1e6, static_cast<double>(p.total) / 1e6);
  if (p.bytes_per_second <= 0) return text;
  text += fmt::format("  {:.1f} MB/s", p.bytes_per_second / 1e6);
  if (p.total > p.done)
    text += fmt::format("  {} left", clock_text(static_cast<double>(p.total - p.done) / p.bytes_per_second));
  return text;
}

OrderedJson json_of(const hub::FetchPlan& plan) {
  OrderedJson files = OrderedJson::array();
  for (const hub::PlannedFile& file : plan.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"here", file.is_here}, {"weights", file.is_weights}});
  return {{"name", plan.name.to_string()}, {"path", plan.path.string()},          {"commit", plan.commit},
          {"bytes", plan.bytes},           {"missing_bytes", plan.missing_bytes}, {"weight_bytes", plan.weight_bytes},
          {"disk_free", plan.disk_free},   {"memory_free", plan.memory_free},     {"fits", plan.fits()},
          {"files", std::move(files)}};
}

hub::FetchOptions options_of(const FetchRequest& request) {
  if (request.retries < 0 || request.retries > 1000)
    throw UsageError(fmt::format("--retries {}: give a number from 0 to 1000", request.retries));
  if (request.timeout < 1 || request.timeout > 86'400)
    throw UsageError(fmt::format("--timeout {}: give seconds from 1 to 86400", request.timeout));
  return {.sha256 = request.sha256,
          .retries = static_cast<int>(request.retries),
          .timeout = std::chrono::seconds(request.timeout)};
}

int dry_run(const FetchRequest& request) {
  hub::FetchOptions options = options_of(request);
  StopOnInterrupt stop;
  options.stop = stop.token();
  options.on_delay = [](std::string_view text) { put_message(text); };
  const hub::FetchPlan plan = hub::plan_fetch(hub::parse_model_name(request.name), options);
  if (request.json) {
    put_foreign(json_text(json_of(plan), 2) + "\n");
    return kOk;
  }
  std::string text;
  for (const hub::PlannedFile& file : plan.files)
    text += fmt::format("  {:>10.1f} MB  {}{}\n", static_cast<double>(file.bytes) / 1e6, file.name,
                        file.is_here ? "  (here)" : "");
  text += plan.to_string() + "\n";
  text += fmt::format("the disk has {:.1f} MB free; nothing was fetched\n", static_cast<double>(plan.disk_free) / 1e6);
  put_foreign(text);
  return kOk;
}

int fetch_model(const FetchRequest& request) {
  if (request.dry_run) return dry_run(request);
  hub::FetchOptions options = options_of(request);
  if (request.quiet) options.on_plan = [](const hub::FetchPlan&) {};
  const hub::FetchedModel model = fetch_with_progress(hub::parse_model_name(request.name), options);
  if (request.json)
    put_foreign(json_text(OrderedJson{{"path", model.path.string()},
                                      {"commit", model.commit},
                                      {"bytes", model.bytes},
                                      {"fetched_bytes", model.fetched_bytes}},
                          2) +
                "\n");
  else
    put_foreign(model.path.string() + "\n");
  return kOk;
}

}  // namespace

hub::FetchedModel fetch_with_progress(const hub::ModelName& name, hub::FetchOptions options) {
  StopOnInterrupt stop;
  options.stop = stop.token();
  Console console(stderr);
  if (!options.on_plan) {  // an empty one asks for silence
    options.on_plan = [&](const hub::FetchPlan& plan) { console.print(for_terminal(plan.to_string()) + "\n"); };
    options.on_progress = [&](const hub::FetchProgress& progress) {
      console.status(progress_line(progress), progress.done == progress.total);
    };
  }
  options.on_delay = [&](std::string_view text) { console.print(for_terminal(text) + "\n"); };
  const hub::FetchedModel model = hub::fetch(name, options);
  console.end_status();
  if (!model.stopped) return model;
  console.print("stopped; what came is kept, and the same command goes on from there\n");
  throw Interrupted{};
}

fs::path fetched_path(std::string_view text) {
  const hub::ModelName name = hub::parse_model_name(text);
  if (const auto found = hub::find_fetched(name)) return *found;
  return fetch_with_progress(name).path;
}

void refuse_bare_name(const fs::path& given) {
  const std::string text = given.string();
  std::error_code ignored;
  if (text.empty() || fs::exists(fs::symlink_status(given, ignored))) return;
  const auto slashes = std::count(text.begin(), text.end(), '/');
  if (slashes == 0 && !given.has_extension())
    throw FileError(
        fmt::format("{}: there is no such file or folder, and no model of this name here (weft models list shows those "
                    "that are); hf:OWNER/NAME fetches one",
                    quote(text)));
  if (slashes != 1 || fs::is_directory(given.parent_path(), ignored)) return;  // a path with a slip
  try {
    const hub::ModelName name = hub::parse_model_name(text);
    if (name.address.empty())
      throw FileError(
          fmt::format("{}: there is no such file or folder; if this is a model of the hub, write {}, which fetches it",
                      quote(text), name.to_string()));
  } catch (const UsageError&) {  // not a name either: who opens the file tells what is wrong
  }
}

void set_up_fetch(CLI::App& app, Action& action) {
  auto request = std::make_shared<FetchRequest>();
  FetchRequest& r = *request;
  app.footer(
      "Fetches into the cache that the hub's other programs use: HF_HUB_CACHE, HF_HOME. HF_ENDPOINT names another\n"
      "hub, HF_TOKEN is your token for models that need one. Prints the path of the model.");
  app.add_option("name", r.name,
                 "OWNER/NAME, with @REVISION, and with :FILE or a type such as :Q4_K_M; or the https address of a GGUF "
                 "file")
      ->required();
  app.add_flag("--dry-run", r.dry_run, "only tell files and sizes, and whether the weights fit into the memory");
  app.add_option("--sha256", r.sha256, "of a file at an address: the hash that it must have");
  app.add_option("--retries", r.retries, "attempts after a failure that may pass")->capture_default_str();
  app.add_option("--timeout", r.timeout, "seconds without a byte before a new attempt")->capture_default_str();
  app.add_flag("--quiet", r.quiet, "no progress");
  app.add_flag("--json", r.json, "for machines");
  app.callback([&action, request] { action = [request] { return fetch_model(*request); }; });
}

}  // namespace weft::cli
