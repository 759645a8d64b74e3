#include "weft/catalogue.hpp"

#include <fmt/format.h>

#include <cmath>
#include <system_error>

#include "base/quote.hpp"
#include "catalogue/families.hpp"

namespace weft::operations {

namespace fs = std::filesystem;

struct Catalogue::State {
  std::shared_ptr<Registry> registry;
  std::shared_ptr<Handles> handles;
  std::function<void(const std::string&, const fs::path&)> load_model;
};

Catalogue::Catalogue(std::shared_ptr<Registry> registry, const CatalogueOptions& options)
    : state_(std::make_unique<State>()) {
  state_->registry = std::move(registry);
  state_->handles = std::make_shared<Handles>(options);
  Registry& to = *state_->registry;
  add_tensor_operations(to, options);
  add_handle_operations(to, state_->handles);
  add_gradient_operations(to);
  add_file_operations(to, options);
  state_->load_model = add_model_operations(to, options);
  add_fetch_operations(to, options);
  add_training_operations(to, options);
  add_tuning_operations(to, options);
  add_grid_operations(to, options);
  add_memory_operations(to, options);
  add_media_operations(to, options);
  add_sense_operations(to, options);
  add_encoder_operations(to, options);
}

Catalogue::~Catalogue() = default;

Handles& Catalogue::handles() { return *state_->handles; }

void Catalogue::load_model(const std::string& name, const fs::path& path) { state_->load_model(name, path); }

fs::path allowed_path(const CatalogueOptions& options, std::string_view path, bool writes) {
  if (options.any_files) return fs::path(path);
  const auto refuse = [&](std::string_view fact) -> fs::path {
    throw OperationError(kAccessDenied, fmt::format("{} {}", quote(path), fact));
  };
  if (path.empty() || path.find('\0') != std::string_view::npos) return refuse("is not a path");
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::path(path), error);
  if (error) return refuse("is not a path");
  for (const fs::path& folder : writes ? options.write_folders : options.read_folders) {
    const fs::path root = fs::weakly_canonical(folder, error);
    if (error || root.empty()) continue;
    const fs::path relative = real.lexically_relative(root);
    if (!relative.empty() && *relative.begin() != "..") return real;
  }
  return refuse(writes ? "is not in a folder that may be written in" : "is not in a folder that may be read");
}

void require_right(const Context& call, std::string_view type, const std::string& resource, std::string_view action) {
  if (!call.identity() || !call.identity()->may(type, resource, action))
    throw OperationError(
        kAccessDenied, fmt::format("the action {} on the {} {} is not allowed", quote(action), type, quote(resource)));
}

std::string owner_of(const Context& call) { return call.identity() ? call.identity()->id : std::string(); }

Value finite_or_null(double number) { return std::isfinite(number) ? Value(number) : Value(); }

Value schema_of(std::string_view text) { return Value::parse(text, "a schema of the catalogue"); }

}  // namespace weft::operations
