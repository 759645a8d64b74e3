// Tokenizers: MB/s of encoding and decoding the demo's text, and seconds to load.
//
//   bench_tokenizer [--rounds N] [TOKENIZER.json or GGUF...]
//
// Without files, those that script/setup --judges fetched. The official library, where it is installed (script/setup --judges),
// encodes the same text in the same run: turns alternate, each counts its fastest, and the ratio is printed. One thread.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "figure.hpp"
#include "text/load_tokenizer.hpp"

namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double seconds_of(const auto& call) {
  const auto start = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One turn of the official library: seconds to load, to encode and to decode; none where it is missing.
constexpr const char* kOfficial = R"(
import sys, time
sys.path.append(sys.argv[1])
from tokenizers import Tokenizer
start = time.perf_counter(); tokenizer = Tokenizer.from_file(sys.argv[2]); load = time.perf_counter() - start
text = open(sys.argv[3], encoding='utf-8').read()
ids = tokenizer.encode(text).ids
start = time.perf_counter(); tokenizer.encode(text); encode = time.perf_counter() - start
start = time.perf_counter(); tokenizer.decode(ids); decode = time.perf_counter() - start
print(load, encode, decode)
)";

struct Times {
  double load = 1e9, encode = 1e9, decode = 1e9;
};

bool official_turn(const fs::path& judges, const fs::path& model, const fs::path& text, Times& best) {
  const auto quoted = [](const std::string& word) {
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
    return out + "'";
  };
  const std::string command =
      fmt::format("TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1 /usr/bin/python3 -c {} {} {} {} 2>/dev/null",
                  quoted(kOfficial), quoted(judges), quoted(model), quoted(text));
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return false;
  Times turn;
  const bool read = std::fscanf(pipe, "%lf %lf %lf", &turn.load, &turn.encode, &turn.decode) == 3;
  pclose(pipe);
  if (!read) return false;
  best = {std::min(best.load, turn.load), std::min(best.encode, turn.encode), std::min(best.decode, turn.decode)};
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  int rounds = 3;
  std::vector<fs::path> models;
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]) == "--rounds" && i + 1 < count) {
      rounds = std::max(1, std::atoi(arguments[++i]));
    } else {
      models.emplace_back(arguments[i]);
    }
  }
  const char* cache_variable = std::getenv("WEFT_CACHE");
  const fs::path cache = cache_variable ? fs::path(cache_variable) : fs::path(WEFT_SOURCE_FOLDER) / ".cache";
  const fs::path text_path = cache / "data" / "moby-dick.txt";
  std::error_code missing;
  if (models.empty())
    for (const auto& entry : fs::directory_iterator(cache / "data" / "tokenizers", missing))
      models.push_back(entry.path());
  if (models.empty() || !fs::exists(text_path)) {
    fmt::print(stderr, "bench_tokenizer: run script/setup --judges, which fetches tokenizers and the text\n");
    return 1;
  }
  std::sort(models.begin(), models.end());

  const std::string text = weft::read_text_file(text_path);
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  fmt::print("{:<16} {:>9} {:>12} {:>12} {:>9} {:>12} {:>7}   (load s, MB/s; official: load s, encode MB/s, ratio)\n",
             "", "load", "encode", "decode", "load", "encode", "ratio");
  for (const fs::path& model : models) {
    Times best, official;
    bool compared = false;
    for (int round = 0; round < rounds; ++round) {
      std::optional<weft::text::Tokenizer> tokenizer;
      best.load = std::min(best.load, seconds_of([&] { tokenizer.emplace(weft::text::load_tokenizer(model)); }));
      const auto ids = tokenizer->encode(text);
      for (int i = 0; i < 3; ++i) {
        best.encode = std::min(best.encode, seconds_of([&] { tokenizer->encode(text); }));
        best.decode = std::min(best.decode, seconds_of([&] { tokenizer->decode(ids); }));
      }
      compared |= official_turn(cache / "judges", model, text_path, official);
    }
    fmt::print("{:<16} {:>9.3f} {:>12.1f} {:>12.1f}", model.stem().string(), best.load, megabytes / best.encode,
               megabytes / best.decode);
    if (compared) {
      fmt::print(" {:>9.3f} {:>12.1f} {:>6.1f}x\n", official.load, megabytes / official.encode,
                 official.encode / best.encode);
      weft::figures::keep({"tokenizers", "encode with " + model.stem().string(), "MB/s", megabytes / best.encode,
                           "tokenizers (Hugging Face)", megabytes / official.encode});
    } else {
      fmt::print("   the official library was not found, or does not read this file\n");
    }
  }
}
