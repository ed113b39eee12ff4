"""Plots about playing: losing, sharing, racing, building and the like."""

from __future__ import annotations

_LOST = """
<own>
{Day}, {h} [took|brought] the {obj} to {place}. <weather>
| {Day}, {h} went to {place} with {his} {noun}. {He} [ran and jumped|played all morning|picked flowers] there.
When it was time to go home, the {noun} was gone! <sad>
| But then {h} looked down. Where was the {obj}? It was [gone|not there]! <sad>
| Soon {he} saw that the {obj} was [missing|lost]. "Oh no! Where is my {noun}?" {he} cried.

{h} looked {spot1}. The {noun} was not there. {He} looked {spot2}. It was not there [either|at all].
| First {he} looked {spot1}, but {he} found only [a leaf|a snail|an old shoe|some mud]. Then {he} looked {spot2}. No {noun}!
{h} saw {his} friend {f}. "{f}, did you see a {obj}?" {he} asked.
| Then {his} friend {f} [came by|came along the path|walked past]. "Why are you so sad, {h}?" asked {f}. "I lost my {obj}," said {h}.
"No, but I [can|will] help you look," said {f}. They [looked|searched] [together|all around {place}|high and low].
| "Don't worry, {h}," {f} said. "We will find your {noun} together." They went back to {place} to look.

Then {f} looked {spot3}. "[I see it|Here it is|I found it]!" {fhe} [called|shouted]. It was the {obj}!
| At last, {h} saw [something|a bit of something] {adj} {spot3}. "[Look, {f}|{f}, look]! It is my {noun}!" {he} cried.
<thanks>
| <happy>
? From then on, {h} [held on tight to|took good care of] the {obj}.
<end>
"""

_SHARE = """
<own_toy>
{Day}, {h} [played with|was playing with] the {obj} {at_place}. <weather>
| {h} took the {noun} to {place} [on a sunny day|after lunch|in the morning].
A {fkind} named {f} came [over|by]. "Can I play with your {noun}[, please|]?" {fhe} asked.
| {His} friend {f} came to play. "I like your {obj}," said {f}. "Can I have a turn?"
"No! It is [mine|my {noun}]!" said {h}. {He} [held the {noun} tight|turned away|hid the {noun} behind {his} back].
| {h} did not want to share. "[No|Go away], this is my {noun}," {he} said.
{f} [was sad|felt sad|looked down] and [walked away|went to sit {spot1}|sat alone {spot1}].

{h} played alone. But it was [not fun|no fun|boring] to play with the {noun} alone.
| Now {h} had the {obj} all to {self}, but {he} [felt lonely|did not feel happy|had no one to laugh with].
? {His} {p} said, "[A toy is more fun with a friend|It is nice to share], {h}."
So {h} went to {f}[ {spot1}|]. "I am sorry, {f}," {he} said. "[Do you want|Would you like] to play with my {obj}?"
| {h} [ran|walked] over to {f}. "[Here|Please take it], {f}. You can have a turn with the {noun}," {he} said.

{f} smiled. "Yes! Thank you, {h}!" They took turns with the {noun} [all day|until the sun went down|and laughed a lot].
| {f} [jumped up|clapped]. Soon they were playing {at_place} with the {obj}, and [both were|everyone was] happy.
{h} learned that [sharing is fun|it is good to share|sharing makes everyone happy|a shared {noun} is twice as fun].
<end>
"""

_STUCK = """
<own_toy>
{h} and {his} friend {f} took the {obj} to {place}. <weather>
| {Day}, {h} played with the {noun} {at_place}. {His} friend {f} [was there|came] too.
[Suddenly|Then] a [big|strong] wind came, and the {noun} [flew|went] up into a [tall|high] tree.
| {h} threw the {noun} up too high. It [got stuck|landed] in a [tall|big] tree!
"Oh no! My {obj} is stuck!" said {h}. <sad>
| "My {noun}!" cried {h}. "It is too high for me[!|.]"

{h} [jumped and jumped|jumped as high as {he} could], but {he} could not reach it. {f} shook the tree, but the {noun} did not [fall|move].
| First, {f} tried to [poke it with|use] a [long |]stick. The stick was too short. Then {h} tried to climb the tree, but {he} [slipped|slid] down.
"I have an idea," said {f}. "[Stand on my back|Let us ask your {p}|You can stand on this box], {h}!"
| {f} thought [hard|for a while]. "[Together|If we work together] we can reach it," {fhe} said. "Climb on my back, {h}!"

{h} reached up, up, up. {He} [got|had] it! The {obj} came down.
| This time {h} was [tall|high] enough. {He} [took|pulled] the {noun} out of the tree. "[I did it|Hooray]!" {he} shouted.
<thanks>
[Working together|Helping each other] makes [hard things|big problems] [easy|small].
| <happy>
<end>
"""

_BUILD = """
<intro>
{Day}, {h} wanted to [build|make] a {build} {at_place}. "It will be the best {build} [ever|in the world]," {he} said.
| {h} had a [big wish|dream]. {He} wanted to build a {color} {build} {at_place}.
{He} [found|got] [some|a lot of] {material} and [worked|started to work] all alone.
| {h} [carried|brought] [some|a lot of] {material} to {place}. It was hard work.
Soon there was a loud crash! The {build} [fell down|fell apart]. <sad>
| But the {build} [shook|tipped to one side] and [fell|broke]. "Oh no! My {build}!" said {h}.

{h} tried again, but the {build} fell [down again|a second time].
| {h} built it again[, a little faster|]. Crash! Down it went.
{His} friend {f} [came by|saw {him}]. "[Can I help you|What are you doing], {h}?" asked {f}.
| A {fkind} named {f} was watching {him}. "May I help you with the {build}?" {fhe} asked.
"Yes, please," said {h}. {f} held the {material} while {h} put it all [in place|together].
| {h} nodded. {f} [found|brought] more {material}, and they [worked|built] slowly this time.

When they were done, the {build} did not fall. It [stood tall|was strong]! They painted it {color}.
| At last the {build} was ready. It was {color} and [strong|lovely], and it did not fall.
"We did it[, {f}|]!" [shouted|said] {h}. "[Our {build} is|Now we have] the best {build} [ever|in the world]!"
{h} learned that [two can do more than one|it is better to work slowly|it is good to ask for help|you should try again].
<end>
"""

_RACE = """
<intro>
{Day}, there was a [big |]race {at_place}. The prize was a {obj}. {h} wanted to win the {noun}.
| {h} loved to run. {Day}, {he} saw a sign for a race {at_place}. The winner would get a {obj}!
{f} [was|wanted to be] in the race too. "I am [so fast|the fastest {fkind} here]," {fhe} said. "I will win!"
| {His} friend {f} came too. "[Good luck|Run fast], {h}," said {f}. "I want the {noun} too."

"[Ready, set, go|One, two, three, go]!" They ran [past|around] {place}. {f} was first and {h} was [right behind {fhim}|second].
| The race began. {h} [ran|raced] as fast as the wind. {f} was [just |]in front of {him}.
Then {f} [fell|tripped on a stone and fell] down. "Ouch! My [knee|leg|foot] hurts," {fhe} cried.
| But near {place}, {f} slipped [in the mud|on wet grass]. "[Ow|Oh no]!" cried {f}. {FHe} could not get up.
{h} [thought about|looked at] the {obj}. Then {he} [stopped|turned back] to help {f}.
| {h} could win the {noun} now! But {he} stopped and [went back|ran back].
"[Hold|Take] my hand, {f}," said {h}. They [walked|went] to the end of the race together[, very slowly|].
| "We will finish together," said {h}. {He} helped {f} [walk|all the way to the end].

[Everyone clapped|All the people cheered] for them. "You are both winners," said {h}'s {p}, and {phe} gave them the {obj} to share.
| They were last, but [everyone|{his} {p}] clapped for {h}. {h} got the {obj} for being kind!
{h} learned that [a friend is better than a prize|being kind is better than winning|helping is more important than a {noun}].
<end>
"""

_NEW_FRIEND = """
<intro>
{h} had no one to play with. {He} wished for a [friend|good friend].
| {h} had just moved to a new home near {place}. {He} did not know anyone, and {he} felt [lonely|alone].
{Day}, {he} went to {place} with {his} {obj}. {He} saw a {fkind} {spot1}.
| {Day}, {h} was walking {at_place}. A {fkind} was sitting all alone {spot1}. {h} had {his} {obj} with {him}.
{h} [wanted to say hello|wanted to talk], but {he} was [shy|too shy|a bit scared]. {He} hid {spot2}.

{h} [took a deep breath|was brave]. "Hello, my name is {h}," {he} said. "[What is your name|Who are you]?"
| Then {h} [remembered|thought of] what {his} {p} said: "Just say hello!" So {he} did. "Hello! I am {h}."
The {fkind} [looked up|smiled]. "I am {f}," {fhe} said. "[I like your {obj}|What a nice {noun}|Is that your {noun}]!"
| "Hi! My name is {f}," said the {fkind}. "I have no one to play with. [Can I see|What is] that {adj} {noun}?"
"[You can hold it|Here, take a look|It is for you to see]," said {h}. {f} [held|looked at] the {noun} and [laughed|smiled].
| {h} showed the {obj} to {f}. They [talked and talked|played for a long time|laughed together].

[Soon|In the evening] {h} had to go home. "Will you come back to {place} tomorrow, {f}?" {he} asked. "[Yes|Of course]!" said {f}.
| When it got dark, {f} said, "[Can we|Let us] play again tomorrow, {h}." And [they did|so they did].
"{P}, I [have a new friend|made a friend today]!" said {h}. "{FHis} name is {f}." {His} {p} was [so |very ]happy for {him}.
? It can be [hard|scary] to say hello, but [a hello can make a friend|it is how you find a friend].
<end>
"""

_RAINY = """
<own>
{Day}, {h} wanted to [go to {place}|play {at_place}]. But it began to rain.
| {h} and {f} had a plan to go to {place}. But [drip, drop|oh no], the rain came down.
"[I do not like|Go away,] rain[!|.] Now we can't go to {place}," said {h}. <sad>
| {h} looked out of the window at the [gray sky|dark clouds|big puddles]. "[Why must it rain|What can I do now]?" {he} said.

{His} friend {f} [was in the house too|came with a wet coat]. "We can play in the {room}," said {f}.
| "Rain can be fun, {h}," said {his} friend {f}. "Let us play in the {room}!"
They put the {obj} in the middle of the {room}. "This is our [ship|magic castle|island]," said {f}. "And the {noun} is our [treasure|king|gold]!"
| {f} put a blanket over [two|three] chairs. It was a tent! They took the {obj} inside.
{h} laughed. [They played for a long time|They told stories|They sang songs] and {h} forgot about the rain.
| Soon {h} was [singing|laughing]. {He} did not hear the rain [at all|any more].

Then the rain stopped, and [the sun came out|there was a rainbow over {place}]. "[Look|Oh, look], {h}!" said {f}.
| When the sun came [out|back], they [ran|went] outside and jumped in the [puddles|mud] with [a big splash|happy feet].
"[I like rain now|That was a good day|I hope it rains tomorrow too]," said {h}. {His} {p} [laughed|smiled] and gave them [hot milk|warm soup|a {treat} to share].
{h} learned that [you can have fun anywhere|a rainy day can be a good day|friends can make any day fun].
<end>
"""

_LEARN = """
<intro>
{h} wanted to [learn to|learn how to] {skill}. {His} friend {f} could {skill}[ very well|], but {h} could not.
| {Day}, {h} saw {f} {at_place}. {f} could {skill}! "I want to {skill} too," said {h}.
{h} tried [once|on Monday]. It did not work. {He} tried [again|once more]. It did not work.
| {h} tried to {skill}, but it was [too hard|very hard]. {He} tried {number} times.
"[I will never learn|I can't do it]!" {he} said. <sad>
| {h} [was so mad that {he} stamped {his} foot|wanted to give up]. "It is too hard[!|.]" {he} said.

{f} [sat down next to {him}|came over]. "I could not {skill} at first," {fhe} said. "I tried [every day|{number} days]."
| "Don't give up, {h}," said {f}. "[I will show you|Watch me, and go slowly]."
So {h} [tried|practiced] every day {at_place}. {f} came [to help|with {him}]. {h} got [better and better|a little better each day].
| Every day after lunch, {h} and {f} went to {place}. {h} tried and tried, and {f} [clapped|cheered] for {him}.

Then, [on a sunny day|one morning], {h} did it! "[Look|Look at me], {f}! I can {skill}!" {he} [shouted|cried].
| At last {h} could {skill}. "[I did it|I can do it]!" {he} said. {f} [jumped up and down|gave {him} a hug].
{h} showed {his} {p}. "[You worked hard|You did not give up]," {phe} said, and gave {him} a {obj}.
| {His} {p} came to {place} to see {him} {skill}. "I am so proud of you," {phe} said.
If you [keep trying|try and try again], you can [learn new things|do hard things].
| <happy>
<end>
"""

PLAY_PLOTS = [_LOST, _SHARE, _STUCK, _BUILD, _RACE, _NEW_FRIEND, _RAINY, _LEARN]
