// A rising tone, and a picture of its spectrum: weft run examples/scripts/spectrogram.ts
// With --allow-write FOLDER, image.write and audio.write make files of both.
import { tensor, stack, audio, image, type Tensor } from "weft";

const rate = 16000;
const rising = Array.from({ length: rate }, (_, t) => Math.sin((2 * Math.PI * (200 + (1500 * t) / rate) * t) / rate));
const file: Uint8Array = audio.encode({ samples: tensor(rising), rate });
const tone: audio.Sound = audio.decode(file);

const mels: Tensor = audio.logMelSpectrogram(tone.samples.get(0), 80);
const low = mels.amin(), high = mels.amax();
const grey = mels.sub(low).div(high.sub(low)).mul(255).to("u8");
const picture = image.resize(stack([grey, grey, grey], 2), 160, 200, { filter: "bilinear" });

console.log(`${file.length} bytes of WAV, ${mels.shape.join(" x ")} mels and frames`);
console.log(`${image.encode(picture, { format: "jpeg", quality: 80 }).length > 1000 ? "a" : "no"} picture ${picture.shape.join(" x ")}`);
