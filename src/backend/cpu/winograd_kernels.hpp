// The functions of an instruction set for winograd.cpp: the transforms of Winograd's F(2 x 2, 3 x 3).
#pragma once

#include <cstdint>

namespace weft::cpu {

inline constexpr int kWinogradTile = 4;     // elements of the image along an axis of a tile
inline constexpr int kWinogradResults = 2;  // of which these many results are made
inline constexpr int kWinogradPlaces = kWinogradTile * kWinogradTile;
inline constexpr int kWinogradTaps = 9;

/// A transform makes the 16 places of a tile. `place` is the distance of one place from the next, and "a vector" has an element
/// of each of `lanes` channels. Tiles overlap along x: the next one begins two elements later.
template <class T>
struct WinogradKernels {
  /// B^T d B for tiles side by side: the elements d are vectors, and rows[y] is a row of 2 * tiles + 2 of them.
  void (*image)(std::int64_t tiles, const T* const* rows, T* to, std::int64_t tile, std::int64_t place);
  /// A d A^T of 2 x 2 results, the transpose of `result`: rows[y] has 2 * tiles vectors.
  void (*gradient)(std::int64_t tiles, const T* const* rows, T* to, std::int64_t tile, std::int64_t place);
  /// G g G^T for `channels` matrices g, whose element t is at taps[t * tap] and is kGemmVectors vectors. Matrices and their
  /// places follow each other.
  void (*weights)(std::int64_t channels, const T* taps, std::int64_t tap, std::int64_t channel, T* to,
                  std::int64_t place);
  /// A^T m A for tiles side by side; an element is kGemmVectors vectors, and those of a place follow each other. Writes two rows
  /// of 2 * tiles elements.
  void (*result)(std::int64_t tiles, const T* from, std::int64_t place, T* to, std::int64_t row);
  /// G^T m G for `count` vectors that follow each other: writes nine vectors of each, `tap` apart.
  void (*weights_gradient)(std::int64_t count, const T* from, std::int64_t place, T* to, std::int64_t tap);
  /// Whether each of the numbers is finite, and remains so in a sum of few.
  bool (*is_finite)(std::int64_t count, const T* from);
};

}  // namespace weft::cpu
