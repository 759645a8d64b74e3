// The keys of the open objects in a text of JSON, so that no key is written twice. No context-free grammar can say that.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace weft::grammar {

/// Reads the beginning of a text of JSON, as a grammar lets it through: the text is not checked. What is before the first bracket
/// may be anything without quotes and brackets. Copies are cheap, because they share what was read.
class JsonKeys {
 public:
  /// False if a key that ends in these bytes is in its object already. Keys are compared as they are written.
  bool read(std::string_view bytes);
  /// The same of a copy.
  bool would_read(std::string_view bytes) const { return JsonKeys(*this).read(bytes); }
  /// Whether any bytes could be refused here, as long as they open no object.
  bool has_keys() const { return level_ != nullptr; }

 private:
  struct Key {
    std::string text;
    std::shared_ptr<const Key> before;
  };
  struct Level {
    bool is_object;
    std::shared_ptr<const Key> keys;
    std::shared_ptr<const Level> outer;
  };
  bool end_key();

  std::shared_ptr<const Level> level_;
  std::string key_;  // what was read of the key that is open
  bool in_string_ = false, in_key_ = false, escapes_ = false, expects_key_ = false;
};

}  // namespace weft::grammar
