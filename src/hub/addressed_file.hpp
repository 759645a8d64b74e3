// A model that is one file at an address, outside of the hub.
#pragma once

#include <filesystem>

#include "hub/client.hpp"
#include "weft/hub.hpp"

namespace weft::hub {

class AddressedFile {
 public:
  /// Errors: UsageError if there is no folder for models.
  AddressedFile(const ModelName& name, const Settings& settings, const FetchOptions& options);

  /// Where the file of an address is, or would be; empty without a cache folder.
  static std::filesystem::path place(const ModelName& name);

  FetchPlan plan();
  FetchedModel run();

 private:
  void check_hash() const;

  const ModelName& name_;
  const FetchOptions& options_;
  Client client_;
  std::filesystem::path path_;
};

}  // namespace weft::hub
