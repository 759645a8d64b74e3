// Fetching models as an operation. It opens the network of the process, so it must be allowed where the catalogue is made, and callers
// need a right of their own.
#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "weft/error.hpp"
#include "weft/hub.hpp"

namespace weft::operations {
namespace {

Value value_of_plan(const hub::FetchPlan& plan) {
  Value::Array files;
  for (const hub::PlannedFile& file : plan.files)
    files.push_back(Value::object({{"name", file.name}, {"bytes", file.bytes}, {"here", file.is_here}}));
  return Value::object({{"path", plan.path.string()},
                        {"commit", plan.commit},
                        {"bytes", plan.bytes},
                        {"missing_bytes", plan.missing_bytes},
                        {"fits", plan.fits()},
                        {"files", std::move(files)}});
}

}  // namespace

void add_fetch_operations(Registry& registry, const CatalogueOptions& options) {
  std::vector<DeclaredError> errors = engine_errors();
  errors.push_back({"FETCH_DISABLED", "this process fetches no models", false, 403});
  registry.add(
      {.space = "model",
       .name = "fetch",
       .kind = Kind::mutation,
       .title = "fetch a model",
       .description = "Fetches what is missing of a model of the hub, and tells its path. With `dry_run` it only tells "
                      "sizes, and whether "
                      "the weights fit into the free memory.",
       .input = schema_of(
           R"({"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
             "name": {"type": "string", "maxLength": 2000, "description": "hf:OWNER/NAME, with @REVISION, and with :FILE or a type such as :Q4_K_M"},
             "dry_run": {"type": "boolean", "default": false}}})"),
       .output = schema_of(
           R"({"type": "object", "required": ["path", "bytes"], "properties": {"path": {"type": "string"}, "commit": {"type": "string"},
             "bytes": {"type": "integer"}, "fetched_bytes": {"type": "integer"}, "missing_bytes": {"type": "integer"}, "fits": {"type": "boolean"},
             "files": {"type": "array", "items": {"type": "object"}}}})"),
       .errors = std::move(errors),
       .access =
           {.scopes = {"model:fetch"}, .resource_type = "model", .resource_action = "fetch", .resource_input = "name"}},
      [may_fetch = options.may_fetch](Context& call) {
        if (!may_fetch)
          throw OperationError("FETCH_DISABLED",
                               "this process fetches no models; weft operations serve --allow-fetch does");
        return with_codes([&] {
          const hub::ModelName name = hub::parse_model_name(call.input("name").string());
          // An address could be one that only this machine reaches.
          if (!name.address.empty())
            throw UsageError("model.fetch: give the name of a model of the hub, not an address");
          const hub::FetchOptions fetch_options{.stop = call.stop()};
          if (call.input("dry_run").boolean()) return value_of_plan(hub::plan_fetch(name, fetch_options));
          const hub::FetchedModel model = hub::fetch(name, fetch_options);
          call.check();
          return Value::object({{"path", model.path.string()},
                                {"commit", model.commit},
                                {"bytes", model.bytes},
                                {"fetched_bytes", model.fetched_bytes}});
        });
      });
}

}  // namespace weft::operations
