// In a browser the page fetches models, and gives them to the module as files.
#include "weft/error.hpp"
#include "weft/hub.hpp"

namespace weft::hub {
namespace {

[[noreturn]] void refuse_in_browser(const ModelName& name) {
  throw FileError(name.to_string() +
                  ": this build fetches no models; let the page fetch the file, and load it from there");
}

}  // namespace

FetchedModel fetch(const ModelName& name, const FetchOptions&) { refuse_in_browser(name); }
FetchPlan plan_fetch(const ModelName& name, const FetchOptions&) { refuse_in_browser(name); }
std::optional<std::filesystem::path> find_fetched(const ModelName&, const FetchOptions&) { return std::nullopt; }

}  // namespace weft::hub
