// Jinja templates as language models use them for chats: an interpreter that no template can break out of.
// docs/chat-templates.md lists the supported features.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/json.hpp"

namespace weft::jinja {

/// Templates come from files and may be hostile: exceeding a limit ends a render with an error.
struct TemplateLimits {
  std::size_t max_source_bytes = std::size_t{1} << 20;
  int max_source_depth = 150;  ///< of nested blocks and expressions
  std::size_t max_output_bytes = std::size_t{64} << 20;
  std::size_t max_memory_bytes = std::size_t{512} << 20;  ///< of all values at one time
  std::uint64_t max_iterations = 10'000'000;              ///< of all loops together
  int max_depth = 500;                                    ///< of nested calls while running
  std::chrono::milliseconds max_time{10'000};
};

/// A piece of rendered text from one origin.
struct Segment {
  std::string text;
  bool from_user;  ///< from variables with this mark: contains no special tokens, whatever it looks like
  bool operator==(const Segment&) const = default;
};

struct Rendered {
  std::vector<Segment> segments;  ///< neighbours differ in origin; none is empty
  std::string text() const;
};

struct TemplateVariable {
  std::string name;
  OrderedJson value;
  bool from_user = true;  ///< every string inside, names of keys too
};

/// A parsed template. Immutable; any number of threads may render it at once.
class Template {
 public:
  /// Errors call it `name`. FileError "name: line 3, column 7: ..." unless `source` is a template.
  Template(std::string_view source, std::string name, TemplateLimits limits = {});

  /// The text for these variables; of two with the same name the last counts. `now` is what strftime_now formats (default: the
  /// local time). UsageError "name: line 3, column 7: ..." if the template fails on them or refuses them with raise_exception,
  /// and for exceeded limits.
  Rendered render(const std::vector<TemplateVariable>& variables, const std::optional<std::tm>& now = {}) const;

  const std::string& name() const { return name_; }

 private:
  struct Parsed;
  std::string name_;
  TemplateLimits limits_;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace weft::jinja
