// Models of which one file is damaged: whatever is done to it, the model loads or is refused by name.
#pragma once

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft::test {

/// Whether a model loaded; `complaint`: what is wrong with the way it was refused, or "".
struct Outcome {
  bool loaded = false;
  std::string complaint;
};

/// Calls use(outcome), which loads a model within little memory, sets `outcome.loaded`, and uses the model. A FileError names the
/// file or says one of `also`; a UsageError may come once the model has loaded.
template <class Use>
Outcome outcome_of(const std::string& file, std::initializer_list<std::string_view> also, const Use& use) {
  Outcome outcome;
  try {
    const MemoryLimit limit(std::size_t{256} << 20);
    use(outcome);
  } catch (const FileError& error) {
    const std::string_view text = error.what();
    bool names = text.find(file) != text.npos;
    for (const std::string_view each : also) names = names || text.find(each) != text.npos;
    if (!names) outcome.complaint = fmt::format("no word of {}: {}", file, error.what());
  } catch (const UsageError& error) {
    if (!outcome.loaded) outcome.complaint = fmt::format("a UsageError: {}", error.what());
  } catch (const std::exception& error) {
    outcome.complaint = error.what();
  }
  return outcome;
}

/// Damages bytes [0, end) of one file of a model and uses the model each time: use() -> Outcome. At least `refused_min` of the
/// damages are refused.
template <class Use>
void expect_damage_is_survived(const TemporaryFolder& folder, const std::string& name, const std::string& good,
                               std::size_t end, std::size_t few, const Use& use, int refused_min = 20) {
  folder.put(name, good);
  const Outcome whole = use();
  ASSERT_TRUE(whole.loaded) << whole.complaint;
  int refused = 0, complaints = 0;
  for_each_mutation(good, end, few, [&](const std::string& mutated, const std::string& what) {
    if (complaints > 5) return;
    folder.put(name, mutated);
    const Outcome outcome = use();
    refused += !outcome.loaded;
    if (outcome.complaint.empty()) return;
    ++complaints;
    ADD_FAILURE() << name << ", " << what << ": " << outcome.complaint;
  });
  EXPECT_GT(refused, refused_min) << name;
  folder.put(name, good);
}

}  // namespace weft::test
