#include "text/tokenizer.hpp"

#include <algorithm>

#include "base/utf8.hpp"
#include "text/byte_level.hpp"
#include "text/call_limits.hpp"
#include "text/tokenizer_parts.hpp"
#include "text/unicode.hpp"

namespace weft::text {
namespace {

using std::size_t;

// A text and its plain ranges.
struct Joined {
  std::string owned;
  std::string_view text;
  std::vector<ByteRange> plain;
};

Joined join(std::span<const TextSegment> segments) {
  Joined joined;
  const bool keep = segments.size() == 1 && !find_invalid_utf8(segments[0].text);
  size_t end = 0;
  for (const TextSegment& segment : segments) {
    const size_t begin = end;
    if (!keep) append_repaired(joined.owned, segment.text);
    end = keep ? segment.text.size() : joined.owned.size();
    if (segment.parse_special || begin == end) continue;
    if (!joined.plain.empty() && joined.plain.back().end == begin) {
      joined.plain.back().end = end;
    } else {
      joined.plain.push_back({begin, end});
    }
  }
  joined.text = keep ? segments[0].text : std::string_view(joined.owned);
  return joined;
}

// The ranges within [begin, end), counted from `begin`.
std::vector<ByteRange> within(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  std::vector<ByteRange> inside;
  auto range = std::partition_point(ranges.begin(), ranges.end(), [&](const ByteRange& r) { return r.end <= begin; });
  for (; range != ranges.end() && range->begin < end; ++range)
    inside.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  return inside;
}

constexpr std::uint64_t kWordWork = 16;

std::string normal_form(const TokenizerParts& parts, std::string_view text, bool& first) {
  std::string normal = parts.normalizer->apply(std::string(text), first);
  CallLimits::check_bytes(normal.size());
  return normal;
}

class Encoder {
 public:
  Encoder(const TokenizerParts& parts, const Joined& joined) : parts_(parts), joined_(joined) {}

  std::vector<TokenId> run() {
    out_.reserve(joined_.text.size() / 3 + 8);
    if (parts_.raw_finder.empty()) {
      section(0, joined_.text.size());
    } else {
      parts_.raw_finder.find(joined_.text, joined_.plain, [&](size_t begin, size_t end, TokenId id) {
        if (id != kNoToken) {
          out_.push_back(id);
        } else {
          section(begin, end);
        }
      });
    }
    return std::move(out_);
  }

 private:
  // A part of the text without raw added tokens.
  void section(size_t begin, size_t end) {
    if (begin == end) return;
    if (!parts_.normalizer) {
      normalized(joined_.text.substr(begin, end - begin), within(joined_.plain, begin, end), begin == 0);
      return;
    }
    if (joined_.plain.empty() || !parts_.normalized_finder.has_control()) {
      bool first = begin == 0;
      const std::string text = normal_form(parts_, joined_.text.substr(begin, end - begin), first);
      normalized(text, {}, first);
      return;
    }
    // A normalizer moves bytes, and control tokens that are looked for after it must not arise from plain text. So plain parts
    // and others are treated apart.
    auto range = std::partition_point(joined_.plain.begin(), joined_.plain.end(),
                                      [&](const ByteRange& r) { return r.end <= begin; });
    for (size_t at = begin; at < end;) {
      if (range != joined_.plain.end() && range->end <= at) ++range;
      const bool none = range == joined_.plain.end();
      const bool plain = !none && range->begin <= at;
      const size_t stop = none ? end : std::min(end, plain ? range->end : range->begin);
      bool first = at == 0;
      const std::string text = normal_form(parts_, joined_.text.substr(at, stop - at), first);
      const ByteRange all{0, text.size()};
      normalized(text, plain ? std::vector<ByteRange>{all} : std::vector<ByteRange>{}, first);
      at = stop;
    }
  }

  void normalized(std::string_view text, const std::vector<ByteRange>& plain, bool first) {
    if (parts_.normalized_finder.empty()) {
      words(text, first);
      return;
    }
    parts_.normalized_finder.find(text, plain, [&](size_t begin, size_t end, TokenId id) {
      if (id != kNoToken) {
        out_.push_back(id);
      } else {
        words(text.substr(begin, end - begin), first && begin == 0);
      }
    });
  }

  void words(std::string_view text, bool first) {
    if (text.empty()) return;
    if (!parts_.pre_tokenizer) {
      parts_.model->encode(text, out_);
      return;
    }
    parts_.pre_tokenizer->split({text, first}, [&](Word word) {
      CallLimits::work(word.text.size() + kWordWork);
      CallLimits::check_bytes(out_.size());
      parts_.model->encode(word.text, out_);
    });
  }

  const TokenizerParts& parts_;
  const Joined& joined_;
  std::vector<TokenId> out_;
};

std::vector<TokenId> encode_segments(const TokenizerParts& parts, std::span<const TextSegment> segments) {
  const Joined joined = join(segments);
  const CallLimits limits(joined.text.size());
  return Encoder(parts, joined).run();
}

}  // namespace

std::optional<std::string_view> TokenizerParts::piece(TokenId id, std::string& memory) const {
  const auto piece = model->vocabulary().piece(id);
  if (!byte_level) return piece;
  if (!piece) return other_pieces.piece(id);
  memory.clear();
  append_as_characters(memory, *piece);
  return memory;
}

TokenId TokenizerParts::id_of_piece(std::string_view piece) const {
  if (!byte_level) return model->vocabulary().find_any(piece);
  const auto bytes = bytes_of_characters(piece);
  return bytes ? model->vocabulary().find_any(*bytes) : other_pieces.find_any(piece);
}

void TokenizerParts::complete() {
  constexpr size_t kNormalFormsMax = size_t{16} << 20;  // of all added tokens: some thousand have some bytes each
  const CallLimits limits(0, kNormalFormsMax);
  size_t normal_bytes = 0;
  id_limit = std::max(model->vocabulary().id_limit(), other_pieces.id_limit());
  for (size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    id_limit = std::max(id_limit, token.id + 1);
    added_by_id.emplace(token.id, i);
    added_by_content.emplace(token.content, token.id);
    added_text.push_back(token.content);
    if (!token.normalized) {
      raw_finder.add(token.content, token);
      continue;
    }
    bool first = true;
    if (normalizer) added_text.back() = normal_form(*this, token.content, first);
    CallLimits::check_bytes(normal_bytes += added_text.back().size());
    normalized_finder.add(added_text.back(), token);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextSegment segment{text, options.parse_special};
  return encode(std::span(&segment, 1), options.add_special);
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextSegment> segments, bool add_special) const {
  std::vector<TokenId> ids = encode_segments(*parts_, segments);
  if (parts_->post_processors.empty()) return ids;
  return post_process(parts_->post_processors, std::move(ids), nullptr, add_special);
}

std::vector<TokenId> Tokenizer::encode_pair(std::string_view first, std::string_view second, EncodeOptions options,
                                            std::vector<std::int32_t>* types) const {
  const CallLimits limits(first.size() + second.size());
  const TextSegment segments[2] = {{first, options.parse_special}, {second, options.parse_special}};
  const std::vector<TokenId> second_ids = encode_segments(*parts_, std::span(segments).subspan(1));
  return post_process(parts_->post_processors, encode_segments(*parts_, std::span(segments).first(1)), &second_ids,
                      options.add_special, types);
}

std::optional<std::string> Tokenizer::piece(TokenId id) const {
  if (const auto added = parts_->added_by_id.find(id); added != parts_->added_by_id.end())
    return parts_->added[added->second].content;
  std::string memory;
  if (const auto piece = parts_->piece(id, memory)) return std::string(*piece);
  return std::nullopt;
}

TokenId Tokenizer::id_of(std::string_view piece) const {
  if (const auto added = parts_->added_by_content.find(piece); added != parts_->added_by_content.end())
    return added->second;
  return parts_->id_of_piece(piece);
}

std::string Tokenizer::token_bytes(TokenId id) const {
  if (const auto added = parts_->added_by_id.find(id); added != parts_->added_by_id.end())
    return parts_->added[added->second].content;
  std::string memory;
  const auto piece = parts_->piece(id, memory);
  return piece ? parts_->decoder.bytes_of(*piece) : std::string();
}

TokenId Tokenizer::vocabulary_size() const { return parts_->id_limit; }

bool Tokenizer::is_special(TokenId id) const {
  const auto added = parts_->added_by_id.find(id);
  return added != parts_->added_by_id.end() && parts_->added[added->second].special;
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const { return parts_->added; }
TokenId Tokenizer::bos() const { return parts_->bos; }
TokenId Tokenizer::eos() const { return parts_->eos; }
TokenId Tokenizer::padding() const { return parts_->padding; }

namespace {

void put(const TokenizerParts& parts, TokenId id, bool skip_special, DecoderRun& run, std::string& memory,
         std::string& out) {
  if (const auto added = parts.added_by_id.find(id); added != parts.added_by_id.end()) {
    if (!(skip_special && parts.added[added->second].special)) run.put(parts.added_text[added->second], out);
    return;
  }
  if (parts.byte_level && run.takes_bytes())
    if (const auto bytes = parts.model->vocabulary().piece(id)) return run.put_bytes(*bytes, out);
  if (const auto piece = parts.piece(id, memory)) run.put(*piece, out);
}

}  // namespace

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  const CallLimits limits(ids.size());
  std::string out, memory;
  DecoderRun run(parts_->decoder, false);
  for (const TokenId id : ids) put(*parts_, id, skip_special, run, memory, out);
  run.finish(out);
  return out;
}

struct StreamDecoder::Run {
  DecoderRun run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), run_(new Run{DecoderRun(tokenizer.parts_->decoder, true)}) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::put(TokenId id) {
  std::string out, memory;
  text::put(*tokenizer_->parts_, id, skip_special_, run_->run, memory, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  run_->run.finish(out);
  return out;
}

}  // namespace weft::text
