// Decoders: from pieces back to a text, piece by piece.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.hpp"

namespace weft::text {

/// One step of a decoder: takes pieces, hands on pieces.
struct DecoderStep {
  enum class Kind {
    kBpe,           ///< text (the suffix of words) becomes a space, at the end of the text nothing
    kByteLevel,     ///< characters of the byte-level alphabet become bytes, all one text
    kByteFallback,  ///< runs of "<0x0A>" become bytes; a run that is not UTF-8 becomes U+FFFD for each byte
    kCtc,        ///< equal neighbours become one, text (padding) goes, other (the delimiter of words) becomes a space
    kFuse,       ///< all pieces are one
    kMetaspace,  ///< text (the marker) becomes a space, or nothing in the first piece if `flag`
    kReplace,    ///< matches become other
    kStrip,      ///< text (a character) is removed, up to `start` times in front and `stop` at the end
    kWordPiece,  ///< text (the prefix of continuing pieces) goes, else a space comes in front
    kJoin,       ///< a space between pieces: what is done where a tokenizer has no decoder
  };
  Kind kind;
  std::string text, other;
  std::shared_ptr<const Pattern> pattern;
  std::size_t start = 0, stop = 0;
  bool flag = false;  ///< kMetaspace: as said; kCtc and kWordPiece: spaces before English punctuation go
};

/// For use by many threads at once.
class Decoder {
 public:
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}
  const std::vector<DecoderStep>& steps() const { return steps_; }

  /// The bytes of a piece in the middle of a text, before UTF-8 is checked: "Ġthe" is " the", "<0xE2>" a byte.
  std::string bytes_of(std::string_view piece) const;

 private:
  std::vector<DecoderStep> steps_;
};

/// Decodes one text. What it gives is UTF-8 whenever it gives something.
class DecoderRun {
 public:
  /// `decoder` must outlive it. `streaming`: bytes of a run (kByteFallback) are given as soon as they are a character, so
  /// that damaged runs are replaced in part only.
  explicit DecoderRun(const Decoder& decoder, bool streaming);
  /// Appends to `out` what is certain by now.
  void put(std::string_view piece, std::string& out);
  /// The same for a piece of the byte-level alphabet by its bytes, where the decoder begins with reading that.
  void put_bytes(std::string_view bytes, std::string& out);
  bool takes_bytes() const { return !steps_.empty() && steps_[0].kind == DecoderStep::Kind::kByteLevel; }
  /// Appends what was held back.
  void finish(std::string& out);

 private:
  struct State {
    std::string held;       // bytes, or the piece before
    std::size_t count = 0;  // pieces seen
    std::size_t left = 0;   // kStrip after kFuse: characters still to be removed in front
    bool holding = false;
  };
  void step(std::size_t i, std::string_view piece, std::string& out);
  void end_step(std::size_t i, std::string& out);
  void put_bytes(State& state, std::string_view bytes, std::size_t i, std::string& out);
  void end_run(std::size_t i, std::string& out);

  const std::vector<DecoderStep>& steps_;
  std::vector<State> states_;
  std::vector<bool> fused_;  // pieces come here as parts of one
  bool streaming_;
};

}  // namespace weft::text
