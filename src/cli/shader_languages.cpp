#include "cli/shader_languages.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <regex>
#include <vector>

#include "base/file.hpp"
#include "base/library_places.hpp"
#include "base/quote.hpp"
#include "weft/error.hpp"

extern char** environ;

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

struct ShaderLanguage {
  std::string_view name, extension, entry_point;
  std::vector<std::string> arguments;  // of naga, which knows the language by the extension
  std::string (*finish)(std::string text) = [](std::string text) { return text; };
};

// naga leaves the places of buffers open in these two languages. They are the numbers of the bindings.
std::string with_places_in_metal(std::string text) {
  text = std::regex_replace(text, std::regex(R"((\bdata(\d+)_ )\[\[user\(fake0\)\]\])"), "$1[[buffer($2)]]");
  return std::regex_replace(text, std::regex(R"((\b_buffer_sizes )\[\[user\(fake0\)\]\])"), "$1[[buffer(30)]]");
}
std::string with_places_in_glsl(std::string text) {
  return std::regex_replace(
      text, std::regex(R"(layout\(std430\)( (?:readonly )?buffer \w+ \{ \w+ _group_0_binding_(\d+)_cs))"),
      "layout(std430, binding = $2)$1");
}

const std::vector<ShaderLanguage>& rows() {
  static const std::vector<ShaderLanguage> all{
      {"wgsl", "wgsl", "main", {}},
      {"spirv", "spv", "main", {"--spirv-version", "1.3"}},
      {"msl", "metal", "main_", {"--metal-version", "2.4"}, with_places_in_metal},
      {"hlsl", "hlsl", "main", {"--shader-model", "60"}},
      {"glsl", "comp", "main", {"--profile", "core450", "--entry-point", "main"}, with_places_in_glsl},
  };
  return all;
}

/// A folder of this process, which is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "weft-kernels-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw FileError(fmt::format("{}: no folder can be made: {}", name, std::strerror(errno)));
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path operator/(std::string_view name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// Runs a program with both outputs in a file. The status that waitpid gives.
int run_program(const std::vector<std::string>& words, const fs::path& output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t program = 0;
  const int error = ::posix_spawnp(&program, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw FileError(fmt::format("{} cannot be started: {}", words[0], std::strerror(error)));
  int status = 0;
  while (::waitpid(program, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string naga() {
  if (const char* named = std::getenv("WEFT_NAGA"); named && *named) {
    if (!fs::exists(named)) throw FileError(fmt::format("WEFT_NAGA: {}: no such file", named));
    return named;
  }
  std::error_code ignored;
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const fs::path file = fs::path(rest.substr(0, rest.find(':'))) / "naga";
    if (::access(file.c_str(), X_OK) == 0 && fs::is_regular_file(file, ignored)) return file;
    rest = rest.find(':') == std::string_view::npos ? std::string_view() : rest.substr(rest.find(':') + 1);
  }
  for (const fs::path& place : library_places("naga")) {
    const fs::path fetched = place.parent_path().parent_path() / ".cache" / "naga" / "bin" / "naga";
    if (fs::exists(fetched, ignored)) return fetched;
  }
  throw FileError(
      "other languages than wgsl need the translator naga, which was not found: run script/setup --kernels or cargo "
      "install "
      "naga-cli, or name the program in WEFT_NAGA");
}

}  // namespace

std::span<const std::string_view> shader_languages() {
  static constexpr std::array<std::string_view, 5> kNames{"wgsl", "spirv", "msl", "hlsl", "glsl"};
  return kNames;
}

KernelLanguage shader_language(std::string_view name) {
  for (const ShaderLanguage& row : rows()) {
    if (row.name != name) continue;
    KernelLanguage language{.name = std::string(name),
                            .extension = std::string(row.extension),
                            .entry_point = std::string(row.entry_point)};
    if (name == "wgsl") return language;
    language.translate = [&row, program = naga()](std::string wgsl) {
      if (row.name == "hlsl" && wgsl.find("num_workgroups") != std::string::npos)
        throw UsageError(
            "HLSL shaders do not see the number of workgroups, which kernels of more than 65,535 need; use smaller "
            "shapes");
      // naga has subgroups without these words, which it does not know.
      wgsl = std::regex_replace(wgsl,
                                std::regex("^(enable subgroups;|diagnostic\\(off, subgroup_uniformity\\);)\n",
                                           std::regex_constants::ECMAScript | std::regex_constants::multiline),
                                "");
      const TemporaryFolder folder;
      const fs::path from = folder / "kernel.wgsl", to = folder / fmt::format("kernel.{}", row.extension),
                     said = folder / "said";
      write_file_atomically(from, wgsl);
      std::vector<std::string> words{program};
      words.insert(words.end(), row.arguments.begin(), row.arguments.end());
      words.insert(words.end(), {from.string(), to.string()});
      if (run_program(words, said) != 0 || !fs::exists(to))
        throw InternalError(fmt::format("{} does not translate it: {}", program, read_text_file(said)));
      return row.finish(read_text_file(to));
    };
    return language;
  }
  throw UsageError(
      fmt::format("{} is not a language of kernels; they are {}", quote(name), fmt::join(shader_languages(), ", ")));
}

}  // namespace weft::cli
