// The families of operations in the catalogue. Each adds its operations to a registry and keeps its state in them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "weft/catalogue.hpp"

namespace weft::operations {

void add_tensor_operations(Registry& registry, const CatalogueOptions& options);
void add_handle_operations(Registry& registry, std::shared_ptr<Handles> handles);
void add_gradient_operations(Registry& registry);
void add_file_operations(Registry& registry, const CatalogueOptions& options);
/// Returns the function that loads a model under a name.
std::function<void(const std::string& name, const std::filesystem::path& path)> add_model_operations(
    Registry& registry, const CatalogueOptions& options);
void add_fetch_operations(Registry& registry, const CatalogueOptions& options);
void add_training_operations(Registry& registry, const CatalogueOptions& options);
void add_tuning_operations(Registry& registry, const CatalogueOptions& options);
void add_grid_operations(Registry& registry, const CatalogueOptions& options);
void add_memory_operations(Registry& registry, const CatalogueOptions& options);
void add_media_operations(Registry& registry, const CatalogueOptions& options);
void add_encoder_operations(Registry& registry, const CatalogueOptions& options);
void add_sense_operations(Registry& registry, const CatalogueOptions& options);

/// The path for reading, or for writing. Errors: OperationError ACCESS_DENIED unless it is inside a folder of the options, with
/// links followed.
std::filesystem::path allowed_path(const CatalogueOptions& options, std::string_view path, bool writes);

/// Errors: OperationError ACCESS_DENIED unless the caller may do `action` on the resource `type:resource`.
void require_right(const Context& call, std::string_view type, const std::string& resource, std::string_view action);

/// The owner of handles and runs that a call makes: the caller's id, or "" without an identity.
std::string owner_of(const Context& call);

/// A number; null if it is NaN or infinite, which JSON lacks.
Value finite_or_null(double number);

/// A schema from text, for rows of operations.
Value schema_of(std::string_view text);

}  // namespace weft::operations
