"""Entries of PyTorch's operator database without a translation, and why. Names are patterns of fnmatch.

The whole run fails for an entry that is neither translated nor listed, and for a pattern that lists nothing.
"""
LEFT_OUT = {
    "complex numbers and Fourier transforms, which Weft does not have":
        "fft.* stft istft complex polar angle imag chalf view_as_real view_as_complex *|complex linalg.eig linalg.eigvals isreal",
    "results are not numbers, or memory that nothing has written":
        "broadcast_shapes equal allclose empty empty_like new_empty new_empty_strided resize_ resize_as_ to zero_",
    "random draws, which differ between generators; test/runtime compares their distributions":
        "uniform normal normal|* randn randn_like rand_like randint_like bernoulli multinomial nn.functional.dropout nn.functional.dropout2d "
        "nn.functional.dropout3d nn.functional.feature_alpha_dropout|with_train nn.functional.rrelu nn.functional.fractional_max_pool* svd_lowrank pca_lowrank",
    "makes a tensor from numbers alone; rows of the table compare these":
        "arange linspace logspace eye ones zeros new_ones new_zeros new_full triu_indices tril_indices",
    "PyTorch's own machinery": "jiterator_*",
    "sparse tensors, which Weft does not have": "sparse.* to_sparse",
    "the factors are not unique, or the operator works on factors in LAPACK's packed form, which Weft does not have":
        "geqrf ormqr qr linalg.qr svd symeig linalg.ldl_*",
    "singular matrices, where the result is decided by rounding":
        "linalg.det|singular linalg.pinv|singular linalg.pinv|hermitian linalg.lstsq*",
    "the same as a translated operator, by another name or over other extents":
        "native_batch_norm nn.functional.interpolate|area masked.cumsum masked.cumprod masked.argmax masked.argmin masked.mean masked.median masked.norm masked.var "
        "masked.std masked.normalize masked.logaddexp sum_to_size",
    "Weft's takes logits": "nn.functional.binary_cross_entropy",
}
