// Steps of recurrent cells for one instruction set; see RecurrentParts in tile.hpp.
#pragma once

#include "backend/cpu/attention_parts.inc.hpp"

namespace weft::cpu {
namespace {

template <class T>
inline Native<T> logistic(Native<T> x) {
  return T{1} / (T{1} + exp(-x));
}

template <class T>
void lstm_step(std::int64_t width, const T* x, const T* product, const T* c_before, T* gates, T* c, T* h) {
  each_vector<T>(width, [&](std::int64_t j, std::int64_t lanes) {
    const auto sum = [&](std::int64_t gate) {
      return load_some<T>(x + gate * width + j, lanes) + load_some<T>(product + gate * width + j, lanes);
    };
    const Native<T> i = logistic<T>(sum(0)), f = logistic<T>(sum(1)), g = tanh(sum(2)), o = logistic<T>(sum(3));
    const Native<T> kept = fma(f, load_some<T>(c_before + j, lanes), i * g);
    store_some<T>(gates + j, i, lanes);
    store_some<T>(gates + width + j, f, lanes);
    store_some<T>(gates + 2 * width + j, g, lanes);
    store_some<T>(gates + 3 * width + j, o, lanes);
    store_some<T>(c + j, kept, lanes);
    store_some<T>(h + j, o * tanh(kept), lanes);
  });
}

template <class T>
void lstm_step_back(std::int64_t width, const T* gates, const T* c, const T* c_before, const T* d_h, const T* carry,
                    T* carry_c, T* d_gates) {
  each_vector<T>(width, [&](std::int64_t j, std::int64_t lanes) {
    const auto gate = [&](std::int64_t k) { return load_some<T>(gates + k * width + j, lanes); };
    const Native<T> i = gate(0), f = gate(1), g = gate(2), o = gate(3), squashed = tanh(load_some<T>(c + j, lanes));
    const Native<T> d = load_some<T>(d_h + j, lanes) + load_some<T>(carry + j, lanes);
    const Native<T> d_c = fma(d * o, T{1} - squashed * squashed, load_some<T>(carry_c + j, lanes));
    store_some<T>(d_gates + j, d_c * g * i * (T{1} - i), lanes);
    store_some<T>(d_gates + width + j, d_c * load_some<T>(c_before + j, lanes) * f * (T{1} - f), lanes);
    store_some<T>(d_gates + 2 * width + j, d_c * i * (T{1} - g * g), lanes);
    store_some<T>(d_gates + 3 * width + j, d * squashed * o * (T{1} - o), lanes);
    store_some<T>(carry_c + j, d_c * f, lanes);
  });
}

template <class T>
void gru_step(std::int64_t width, const T* x, const T* product, const T* bias, const T* h_before, T* saved, T* h) {
  each_vector<T>(width, [&](std::int64_t j, std::int64_t lanes) {
    const auto from_h = [&](std::int64_t gate) {
      const Native<T> p = load_some<T>(product + gate * width + j, lanes);
      return bias ? p + load_some<T>(bias + gate * width + j, lanes) : p;
    };
    const auto from_x = [&](std::int64_t gate) { return load_some<T>(x + gate * width + j, lanes); };
    const Native<T> r = logistic<T>(from_x(0) + from_h(0)), z = logistic<T>(from_x(1) + from_h(1)), inner = from_h(2);
    const Native<T> n = tanh(fma(r, inner, from_x(2)));
    store_some<T>(saved + j, r, lanes);
    store_some<T>(saved + width + j, z, lanes);
    store_some<T>(saved + 2 * width + j, n, lanes);
    store_some<T>(saved + 3 * width + j, inner, lanes);
    store_some<T>(h + j, fma(z, load_some<T>(h_before + j, lanes) - n, n), lanes);
  });
}

template <class T>
void gru_step_back(std::int64_t width, const T* saved, const T* h_before, const T* d_h, T* carry, T* d_gates,
                   T* d_products) {
  each_vector<T>(width, [&](std::int64_t j, std::int64_t lanes) {
    const auto gate = [&](std::int64_t k) { return load_some<T>(saved + k * width + j, lanes); };
    const Native<T> r = gate(0), z = gate(1), n = gate(2), inner = gate(3);
    const Native<T> d = load_some<T>(d_h + j, lanes) + load_some<T>(carry + j, lanes);
    const Native<T> d_n = d * (T{1} - z) * (T{1} - n * n);
    const Native<T> d_z = d * (load_some<T>(h_before + j, lanes) - n) * z * (T{1} - z);
    const Native<T> d_r = d_n * inner * r * (T{1} - r);
    store_some<T>(d_gates + j, d_r, lanes);
    store_some<T>(d_gates + width + j, d_z, lanes);
    store_some<T>(d_gates + 2 * width + j, d_n, lanes);
    store_some<T>(d_products + j, d_r, lanes);
    store_some<T>(d_products + width + j, d_z, lanes);
    store_some<T>(d_products + 2 * width + j, d_n * r, lanes);
    store_some<T>(carry + j, d * z, lanes);
  });
}

template <class T>
void rnn_step(std::int64_t width, bool relu, const T* x, const T* product, T* h) {
  each_vector<T>(width, [&](std::int64_t j, std::int64_t lanes) {
    const Native<T> sum = load_some<T>(x + j, lanes) + load_some<T>(product + j, lanes);
    store_some<T>(h + j, relu ? (sum > T{0} || sum != sum ? sum : Native<T>{}) : tanh(sum), lanes);
  });
}

template <class T>
void rnn_step_back(std::int64_t width, bool relu, const T* h, const T* d_h, const T* carry, T* d_gates) {
  each_vector<T>(width, [&](std::int64_t j, std::int64_t lanes) {
    const Native<T> at = load_some<T>(h + j, lanes);
    const Native<T> d = load_some<T>(d_h + j, lanes) + load_some<T>(carry + j, lanes);
    store_some<T>(d_gates + j, relu ? (at > T{0} ? d : Native<T>{}) : d * (T{1} - at * at), lanes);
  });
}

template <class T>
RecurrentParts<T> recurrent_parts_of() {
  return {lstm_step<T>, lstm_step_back<T>, gru_step<T>, gru_step_back<T>, rnn_step<T>, rnn_step_back<T>};
}

}  // namespace
}  // namespace weft::cpu
