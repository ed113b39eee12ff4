"""Story parts that several plots share: openings, feelings, endings.

`{h}` is the hero and `{f}` the friend; `{he}` and `{fhe}` are their pronouns.
"""

from __future__ import annotations

_OWN = """
Once upon a time, there was a {trait} {kind} named {h}. {h} had a {obj}[.| that {he} loved very much.]
{h} had a {obj}. It was [a gift from {his} {p}|{his} favorite {noun}|the best {noun} in the whole town].
There was a {kind} [called|named] {h} who had a {obj}. {He} [took it everywhere|loved it a lot|kept it close all day].
{h} was a {trait} {kind}. [Of all {his} things|Most of all], {he} loved {his} {obj}.
{Day}, {h} got a {obj} from {his} {p}. "[What a nice|I love this] {noun}! Thank you!" said {h}.
[Long ago|Once], a {trait} {kind} named {h} lived [with {his} {p} |]near {place}. {He} had a {obj}.
"Look at my {obj}!" said {h}. {h} was a {trait} {kind}, and {he} was [so|very] proud of {his} {noun}.
"""

SHARED = {
    "own": _OWN,
    "own_toy": _OWN,
    "own_breakable": _OWN,
    "intro": """
Once upon a time, there was a {trait} {kind} named {h}.
There was once a {trait} {kind} [named|called] {h}. {He} lived [near {place}|with {his} {p}|in a {color} house].
{h} was a {trait} {kind} who lived [near {place}|in a {color} house|with {his} {p} in a small house].
In a {color} house [near {place} |]lived a {kind} named {h}.
A {kind} named {h} lived with {his} {p}. {He} was a very {trait} {kind}.
Once there was a {kind}. {His} name was {h}, and {he} was [very|always] {trait}.
""",
    "weather": """
The sun was [bright|warm|out|high in the sky].
It was a [warm|sunny|cool|windy|bright|lovely] [day|morning].
The sky was blue and [the birds sang|a soft wind blew|there were no clouds].
The air was [cool|warm] and the [grass was wet|leaves were dancing|birds were awake].
""",
    "sad": """
{h} felt [very |so |]sad.
{h} [was sad|was so sad|began to cry|wanted to cry|felt bad|felt a tear on {his} cheek].
{His} eyes were [full of tears|wet].
{He} [sat down and cried|let out a big sigh|felt a lump in {his} throat].
""",
    "happy": """
{h} [felt so happy|was very happy|was full of joy|smiled a big smile|jumped for joy|clapped and laughed].
{He} [smiled from ear to ear|gave a big laugh|danced around|felt warm inside].
{h} and {f} [were both happy|laughed and laughed|gave each other a big hug].
""",
    "thanks": """
"Thank you, {f}!" said {h}. "You are [a good friend|so kind|the best]."
{h} [hugged|thanked] {f}. "[You are so kind|I am glad you are my friend|What would I do without you]," {he} said.
"Thank you so much, {f}," {h} said [with a smile|and gave {fhim} a hug].
{f} smiled. "Friends help each other," {fhe} said.
""",
    "parent_hug": """
{His} {p} [gave {him} a hug|smiled at {him}|kissed {him} on the head]. "I am proud of you, {h}," {phe} said.
"[Well done|Good job|That was kind], {h}," said {his} {p}.
When {his} {p} heard the story, {phe} [smiled|was so proud|gave {h} a hug].
{h} told {his} {p} all about it, and {phe} [laughed|smiled|listened to every word].
""",
    "end": """
[From that day on|After that], {h} and {f} were [best friends|the best of friends|always happy to play together].
That night, {h} went to [bed|sleep] with a [smile|happy heart].
And {h} [never forgot|always remembered] that day {at_place}.
They all [had a good day|went home happy|lived happily ever after].
It was [the best day ever|a very good day] for {h} and {f}.
""",
}
