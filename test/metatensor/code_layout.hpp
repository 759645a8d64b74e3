// The layout whose declarations are compiled, and a value of it.
#pragma once

#include "weft/tensor.hpp"
#include "weft/typedef.hpp"

namespace weft::typedefs::test_code {

inline Layout layout() {
  return Layout(Value::parse(R"({"TypeDef:Struct": {"align": 16}, "properties": {
    "id": {"TypeDef:Uint8": true}, "weight": {"TypeDef:Float64": true}, "half": {"TypeDef:Float16": true},
    "class": {"TypeDef:Enum": true, "enum": ["cat", "new"]}, "name": {"TypeDef:String": true, "maxLength": 5},
    "pixels": {"TypeDef:Tensor": {"dtype": "f32", "shape": [2, 3]}}, "packed": {"TypeDef:Tensor": {"dtype": "int4", "shape": [3]}},
    "empty": {"TypeDef:Tensor": {"dtype": "f32", "shape": [0]}},
    "points": {"TypeDef:Array": true, "maxItems": 2, "items": {"TypeDef:Struct": true, "properties": {
      "x": {"TypeDef:Int16": true}, "y": {"TypeDef:Int32": true}}}},
    "near": {"TypeDef:Float32": true, "TypeDef:Align": 1},
    "shape": {"TypeDef:Union": {"discriminator": {"offset": 1, "type": "Uint8"}, "mapping": {
      "1": {"TypeDef:Float32": true}, "2": {"TypeDef:Struct": true, "properties": {"a": {"TypeDef:Uint16": true}}}}}}}})"));
}

inline Value value() {
  return Value::object({{"id", 7},
                        {"weight", 2.5},
                        {"half", 1.0},
                        {"class", "new"},
                        {"name", "abc"},
                        {"pixels", tensor({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}})},
                        {"packed", cast(tensor({1.0f, 2.0f, 3.0f}), DType::int4)},
                        {"empty", zeros({0})},
                        {"points", Value::parse(R"([{"x": -1, "y": -2}])")},
                        {"near", 0.5},
                        {"shape", Value::parse(R"({"__discriminator": 2, "value": {"a": 9}})")}});
}

}  // namespace weft::typedefs::test_code
