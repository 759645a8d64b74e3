#include "grammar/json_keys.hpp"

namespace weft::grammar {

bool JsonKeys::end_key() {
  for (const Key* key = level_->keys.get(); key; key = key->before.get())
    if (key->text == key_) return false;
  level_ = std::make_shared<const Level>(
      Level{true, std::make_shared<const Key>(Key{std::move(key_), level_->keys}), level_->outer});
  key_.clear();
  return true;
}

bool JsonKeys::read(std::string_view bytes) {
  for (const char c : bytes) {
    if (in_string_) {
      if (!escapes_ && c == '"') {
        in_string_ = false;
        if (in_key_ && !end_key()) return false;
        in_key_ = false;
        continue;
      }
      escapes_ = !escapes_ && c == '\\';
      if (in_key_) key_ += c;
      continue;
    }
    switch (c) {
      case '"':
        in_string_ = true;
        in_key_ = expects_key_;
        expects_key_ = false;
        break;
      case '{':
      case '[':
        level_ = std::make_shared<const Level>(Level{c == '{', nullptr, level_});
        expects_key_ = c == '{';
        break;
      case '}':
      case ']':
        if (level_) level_ = level_->outer;
        expects_key_ = false;
        break;
      case ',': expects_key_ = level_ && level_->is_object; break;
      default: break;
    }
  }
  return true;
}

}  // namespace weft::grammar
