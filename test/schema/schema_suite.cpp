// The official test suite of JSON Schema, draft 2020-12: schema_suite FOLDER.
//
// FOLDER is the suite's own folder, with tests/ and remotes/ (script/setup --judges fetches it). All required cases must
// hold, and the optional ones, with formats asserted, but for the files that are listed below.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "weft/schema.hpp"

namespace weft::schema {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRequiredCases = 1257;  // of the version in script/versions

// Optional files that Weft does not follow, and why.
constexpr std::string_view kLeftOut[] = {
    "cross-draft.json",                 // other drafts are refused
    "dependencies-compatibility.json",  // `dependencies` is a keyword of older drafts
    "idn-hostname.json",                // needs the tables of IDNA
};

struct Count {
  std::size_t run = 0, failed = 0;
};

class Suite {
 public:
  explicit Suite(fs::path folder) : folder_(std::move(folder)) {}

  void run(const fs::path& file, bool formats, Count& count) {
    const Value groups = Value::parse(read_text_file(file), file.string());
    for (const Value& group : groups.elements()) {
      SchemaOptions options{.asserts_formats = formats, .fetch = [this](const std::string& uri) { return fetch(uri); }};
      const std::string title = fmt::format("{}: {}", file.filename().string(), group["description"].string());
      try {
        const Schema schema(group["schema"], options);
        for (const Value& test : group["tests"].elements()) {
          ++count.run;
          const bool valid = schema.accepts(test["data"]);
          const std::vector<Violation> violations = schema.check(test["data"]);
          if (valid == test["valid"].boolean() && violations.empty() == valid) continue;
          ++count.failed;
          fmt::print("{}: {}: {}\n  {}\n", title, test["description"].string(), valid ? "taken" : "refused",
                     to_string(violations));
        }
      } catch (const Error& error) {
        count.run += group["tests"].elements().size();
        count.failed += group["tests"].elements().size();
        fmt::print("{}: {}\n", title, error.what());
      }
    }
  }

 private:
  std::optional<Value> fetch(const std::string& uri) const {
    constexpr std::string_view kHost = "http://localhost:1234/";
    if (!uri.starts_with(kHost)) return std::nullopt;
    const fs::path file = folder_ / "remotes" / uri.substr(kHost.size());
    if (!fs::is_regular_file(file)) return std::nullopt;
    return Value::parse(read_text_file(file), uri);
  }
  fs::path folder_;
};

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

int main(int count, char** arguments) {
  if (count < 2 || !fs::is_directory(fs::path(arguments[1]) / "tests" / "draft2020-12")) {
    fmt::print("schema_suite: no test suite in {}; run script/setup --judges\n",
               count < 2 ? "(no folder given)" : arguments[1]);
    return 1;
  }
  Suite suite(arguments[1]);
  const fs::path tests = fs::path(arguments[1]) / "tests" / "draft2020-12";
  Count required;
  for (const fs::path& file : files_in(tests)) suite.run(file, false, required);
  fmt::print("{} of {} required cases hold\n", required.run - required.failed, required.run);
  Count optional;
  for (const fs::path& folder : {tests / "optional", tests / "optional" / "format"})
    for (const fs::path& file : files_in(folder)) {
      const bool formats = folder.filename() == "format";
      if (std::find(std::begin(kLeftOut), std::end(kLeftOut), file.filename().string()) == std::end(kLeftOut))
        suite.run(file, formats, optional);
    }
  fmt::print("{} of {} optional cases hold\n", optional.run - optional.failed, optional.run);
  return required.failed == 0 && optional.failed == 0 && required.run >= kRequiredCases ? 0 : 1;
}

}  // namespace
}  // namespace weft::schema

int main(int count, char** arguments) { return weft::schema::main(count, arguments); }
