#include "text/post_processor.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::text {
namespace {

// A template may repeat a sequence; several in a row would multiply it without end.
constexpr std::size_t kGrowth = 4, kSpare = 1 << 16;

}  // namespace

std::vector<TokenId> post_process(const std::vector<PostProcessor>& processors, std::vector<TokenId> first,
                                  const std::vector<TokenId>* second, bool special, std::vector<std::int32_t>* types) {
  const std::size_t given = first.size() + (second ? second->size() : 0), most = kGrowth * given + kSpare;
  std::vector<std::int32_t> first_types(types ? first.size() : 0), out_types;
  for (const PostProcessor& processor : processors) {
    std::vector<TokenId> out;
    out_types.clear();
    for (const TemplateItem& item : second ? processor.pair : processor.single) {
      switch (item.kind) {
        case TemplateItem::Kind::kToken:
          if (special) out.push_back(item.token);
          break;
        case TemplateItem::Kind::kFirst: out.insert(out.end(), first.begin(), first.end()); break;
        case TemplateItem::Kind::kSecond: out.insert(out.end(), second->begin(), second->end()); break;
      }
      if (types) out_types.resize(out.size(), item.type);
      if (out.size() > most)
        throw UsageError(fmt::format(
            "the tokenizer's post-processors make more than {} tokens of {}, their limit; take another copy of "
            "its file",
            most, given));
    }
    first = std::move(out);
    first_types = out_types;
    second = nullptr;
  }
  if (second) first.insert(first.end(), second->begin(), second->end());
  if (types) {
    first_types.resize(first.size(), second ? 1 : 0);
    *types = std::move(first_types);
  }
  return first;
}

}  // namespace weft::text
