// Models that are named and not yet here: weft models fetch, and hf: in the place of a path.
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <functional>
#include <string_view>

#include "cli/commands.hpp"
#include "weft/hub.hpp"

namespace weft::cli {

/// Fetches it with messages and progress on standard error. Throws Interrupted after Ctrl-C; what came stays.
hub::FetchedModel fetch_with_progress(const hub::ModelName& name, hub::FetchOptions options = {});

/// The path of hf:OWNER/NAME or an address: of the model that the cache has, without the network, else of the one that is fetched.
std::filesystem::path fetched_path(std::string_view text);

/// FileError for a word or OWNER/NAME that is not a path, which says how to find or fetch a model.
void refuse_bare_name(const std::filesystem::path& given);

void set_up_fetch(CLI::App& app, Action& action);

}  // namespace weft::cli
