#include "text/post_processor.hpp"

namespace weft::text {

std::vector<TokenId> post_process(const std::vector<PostProcessor>& processors, std::vector<TokenId> first,
                                  const std::vector<TokenId>* second, bool special) {
  for (const PostProcessor& processor : processors) {
    std::vector<TokenId> out;
    for (const TemplateItem& item : second ? processor.pair : processor.single) {
      switch (item.kind) {
        case TemplateItem::Kind::kToken:
          if (special) out.push_back(item.token);
          break;
        case TemplateItem::Kind::kFirst: out.insert(out.end(), first.begin(), first.end()); break;
        case TemplateItem::Kind::kSecond: out.insert(out.end(), second->begin(), second->end()); break;
      }
    }
    first = std::move(out);
    second = nullptr;
  }
  if (second) first.insert(first.end(), second->begin(), second->end());
  return first;
}

}  // namespace weft::text
