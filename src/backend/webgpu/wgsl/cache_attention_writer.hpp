// Writes the shaders of attention over a cache that computes in f32.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "backend/webgpu/wgsl/cache_attention.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {

/// With many queries, a workgroup takes heads of a query that share keys. For the scores a thread takes a key; for
/// the result it takes four channels of some keys. Few queries leave most of a GPU idle, so the time of one query
/// counts. Then a workgroup takes one head of a query, and a team of neighbouring threads takes a key, with four
/// channels each. A team has its own softmax over its keys, so its loads wait for no other team; the teams join at
/// the end.
class CacheAttentionWriter {
 public:
  CacheAttentionWriter(const kernel::CallKernel& kernel, const Target& target);

  void render(Scratch& scratch, Rendered& rendered);
  /// The dispatch that visits the keys; returns where it writes.
  kernel::Operand render_parts(Scratch& scratch, Rendered& rendered);
  /// Parts that can be read by fours.
  std::optional<AttentionParts> parts_by_fours() const;

 private:
  /// Elements of a part: its channels, the largest score, the sum of exponentials.
  Extent pitch() const { return width_ + (width_ % 4 == 0 ? 4 : 2); }

  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  bool uses_subgroups() const { return target_.subgroup_size >= 2 && threads_ % target_.subgroup_size == 0; }
  Extent parts() const { return uses_subgroups() ? threads_ / target_.subgroup_size : threads_; }
  template <class Each>
  void each_head(Each each) const {
    for (Extent g = 0; g < together_; ++g) each(g);
  }

  // For any number of queries (cache_attention.cpp).
  /// The row of a key. In a ring, keys are positions of the sequence whose ring begins at `origin`; else they are rows.
  std::string row_of(const std::string& key) const {
    return a_.ring > 0 ? fmt::format("origin + {}", modulo(key, a_.ring)) : key;
  }
  void write_seen(const Bindings& bindings, int first, int length);
  std::string query(const Bindings& bindings, int q, const std::string& head, const std::string& c) const;
  std::string capped(const std::string& score) const;
  void write_row(const Bindings& bindings, int to, Extent g);
  /// An input with a number for each head, if it is given.
  static int add_of_heads(Bindings& bindings, const kernel::CallKernel& kernel, std::size_t input);
  /// The sum of exponentials with that of the head's sink, if there are sinks.
  static std::string with_sink(const Bindings& bindings, int sinks, const std::string& total, const std::string& top,
                               const std::string& head);
  /// Adds what a score loses by its distance; `key` is the key's place as u32.
  std::string sloped(const std::string& score, Extent g, const std::string& key) const;
  RenderedDispatch join(const kernel::Operand& partial) const;
  RenderedDispatch join_by_fours(const AttentionParts& parts) const;
  RenderedDispatch join_by_ones(const kernel::Operand& partial) const;

  // Many queries (cache_attention_heads.cpp).
  void write_queries(const Bindings& bindings, int q);
  void write_joined(const char* name, bool is_max);
  void write_keys();
  void write_result(const Bindings& bindings, int to);

  // Few queries (cache_attention_teams.cpp).
  Extent teams() const { return threads_ / team_; }
  Extent of_thread() const { return divide_up(fours_, team_); }  // groups of four channels
  template <class Each>
  void each_four(Each each) const {
    for (Extent p = 0; p < of_thread(); ++p) each(p);
  }
  void write_keys_of_teams(const Bindings& bindings, int q);
  void write_result_of_teams(const Bindings& bindings, int to);

  const kernel::CallKernel& kernel_;
  const Target& target_;
  graph::CacheAttention a_;
  Extent tokens_, heads_, width_, rows_, words_, fours_;
  Extent together_ = 1, threads_ = 128, splits_ = 1;
  Extent team_ = 0;               // threads that share a key, for few queries
  int sinks_ = -1, slopes_ = -1;  // bindings of the visiting dispatch; -1: none
  std::string text_;
};

}  // namespace weft::webgpu
