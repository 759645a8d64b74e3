// Models by name.
#include <fmt/format.h>

#include <filesystem>

#include "callable.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/optional.h"
#include "options.hpp"
#include "weft/hub.hpp"
#include "weft/llm_models.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

hub::FetchOptions fetch_options(const nb::dict& given) {
  hub::FetchOptions options;
  take(given, "endpoint", options.endpoint);
  take(given, "token", options.token);
  take(given, "cache", options.cache);
  take(given, "offline", options.offline);
  take(given, "sha256", options.sha256);
  take(given, "retries", options.retries);
  if (given.contains("timeout")) options.timeout = std::chrono::seconds(nb::cast<std::int64_t>(given["timeout"]));
  if (given.contains("progress") && !given["progress"].is_none())
    options.on_progress = [call = Callable(given["progress"])](const hub::FetchProgress& progress) {
      const nb::gil_scoped_acquire gil;
      call.get()(progress.file, progress.done, progress.total);
    };
  return options;
}

nb::dict dict_of(const hub::FetchPlan& plan) {
  nb::list files;
  for (const hub::PlannedFile& file : plan.files) {
    nb::dict each;
    each["name"] = file.name;
    each["bytes"] = file.bytes;
    each["here"] = file.is_here;
    files.append(each);
  }
  nb::dict made;
  made["path"] = plan.path;
  made["commit"] = plan.commit;
  made["bytes"] = plan.bytes;
  made["missing_bytes"] = plan.missing_bytes;
  made["weight_bytes"] = plan.weight_bytes;
  made["memory_free"] = plan.memory_free;
  made["fits"] = plan.fits();
  made["files"] = files;
  return made;
}

nb::dict dict_of(const llm::StoredModel& model) {
  nb::dict made;
  made["name"] = model.name;
  made["path"] = model.path;
  made["format"] = model.format;
  made["family"] = model.family;
  made["type"] = model.type;
  made["parameters"] = model.parameters;
  made["context"] = model.context;
  made["bytes"] = model.bytes;
  made["problem"] = model.problem;
  return made;
}

}  // namespace

void bind_hub(nb::module_& m) {
  m.def("_fetch_model", [](const std::string& name, const nb::dict& options) {
    const hub::FetchOptions given = fetch_options(options);
    return without_gil([&] { return hub::fetch(hub::parse_model_name(name), given).path; });
  });
  m.def("_plan_fetch", [](const std::string& name, const nb::dict& options) {
    const hub::FetchOptions given = fetch_options(options);
    return dict_of(without_gil([&] { return hub::plan_fetch(hub::parse_model_name(name), given); }));
  });
  m.def("_find_fetched", [](const std::string& name, const nb::dict& options) {
    return hub::find_fetched(hub::parse_model_name(name), fetch_options(options));
  });
  m.def("_stored_models", [](std::vector<Path> folders) {
    const auto models = without_gil([&] {
      if (folders.empty()) folders = llm::model_folders();
      return llm::stored_models(folders);
    });
    nb::list list;
    for (const llm::StoredModel& model : models) list.append(dict_of(model));
    return list;
  });
}

}  // namespace weft::python
